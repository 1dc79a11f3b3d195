"""The tokenizer contract: text becomes ids segment by segment, and sampled ids stay as they are."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class TokenCodec(Protocol):
    """A reversible map between text and token ids."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def pad_id(self) -> int:
        """Id that fills rows; masks come from lengths, never from it."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends a turn (model configuration and template terminator)."""
        ...

    @property
    def digest(self) -> str:
        """Content digest: vocabulary, merges, special tokens, normalisation.

        Equal sizes prove nothing.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; control tags in it become their own ids. Adds nothing."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        ...
