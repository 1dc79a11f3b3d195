"""The tokenizer contract: text becomes ids segment by segment, and sampled ids stay as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
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


class TokenRole(StrEnum):
    """What a token is for; equal bytes in another role are another token."""

    TEXT = "text"
    """A piece of text."""
    CONTROL = "control"
    """A tag that text never spells by itself: a header, a separator, padding."""
    END = "end"
    """A control tag that ends a turn."""


@dataclass(frozen=True)
class Piece:
    """What one token stands for."""

    content: bytes
    """Bytes of UTF-8 text, possibly part of a character."""
    role: TokenRole


@runtime_checkable
class SpelledCodec(TokenCodec, Protocol):
    """A codec whose tokens have bytes of their own, whatever stands before them."""

    def pieces(self) -> Mapping[int, Piece]:
        """Return what each id stands for; an id without an entry stands for nothing known."""
        ...
