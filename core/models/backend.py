"""The contract between models and everything that uses them.

A backend is a causal decoder whose output head is applied apart from its trunk, so that logits
exist only where they are needed. Engine rows obey one rule: key slot ``w`` of a row holds the
token at position ``w``, and a query at position ``p`` attends to slots ``0..p`` of its own row.
A query token that pads a step is written past the row's cursor, where nothing attends to it before
a real token overwrites it; so no mask depends on who shares the batch.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from core.trajectory.tokens import TokenCodec

if TYPE_CHECKING:
    from core.models.quantization import GradientCheck

PADDING_POSITIONS = 64
"""Positions past the longest sequence that a backend with rotary positions accepts in a step: what
pads a block of context may lie there, and nothing attends to it."""


@dataclass
class KVCache:
    """Keys and values of fixed physical rows.

    Attributes:
        keys: Per layer ``[S, Hkv, W, D]``.
        values: Per layer ``[S, Hkv, W, D]``.
    """

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def rows(self) -> int:
        """Physical rows S."""
        return self.keys[0].shape[0]

    @property
    def width(self) -> int:
        """Key slots W per row: the longest sequence that a row can hold."""
        return self.keys[0].shape[2]

    def copy_row(self, source: "KVCache", source_row: int, row: int, length: int) -> None:
        """Copy the first ``length`` slots of a row of ``source`` into ``row``."""
        for own, other in zip(
            [*self.keys, *self.values], [*source.keys, *source.values], strict=True
        ):
            own[row, :, :length].copy_(other[source_row, :, :length])


@runtime_checkable
class Backend(Protocol):
    """A causal decoder. All tensors live on ``device``; hidden states are after the final norm."""

    @property
    def name(self) -> str:
        """Kind of backend."""
        ...

    @property
    def device(self) -> torch.device:
        """Where everything lives."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Arithmetic of the weights."""
        ...

    @property
    def vocab_size(self) -> int:
        """Width V of the head."""
        ...

    @property
    def hidden_size(self) -> int:
        """Width H of the trunk."""
        ...

    @property
    def max_positions(self) -> int:
        """Longest sequence."""
        ...

    @property
    def step_positions(self) -> int:
        """Positions that ``step`` may be given: ``max_positions`` and room for padding."""
        ...

    @property
    def physical_rows(self) -> int:
        """Rows of every engine step, whatever the number of live episodes.

        A constant per backend, so that an episode's bits do not depend on who shares its batch.
        """
        ...

    @property
    def dropped_mass(self) -> float:
        """Largest probability that head rows without a token had on the tokens probed at load.

        ``project`` cuts these rows off before any softmax; 0 where the head has none.
        """
        ...

    @property
    def quantization(self) -> str:
        """How frozen weights are stored: ``none``, ``nf4`` or ``int8``."""
        ...

    @property
    def tokenizer(self) -> TokenCodec:
        """The codec whose ids it reads."""
        ...

    def hidden_states(self, token_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Run the trunk over right-padded rows; gradients flow if enabled.

        Args:
            token_ids_BT: int64; rows are right-padded with anything.
            lengths_B: int64, real tokens of each row; ids at or past it never influence
                a real position.

        Returns:
            ``hidden_BTH`` in the model's dtype; rows past their length are undefined but finite.
        """
        ...

    def project(self, hidden_NH: Tensor) -> Tensor:
        """Apply the output head: ``logits_NV`` through the model's own path (scale, softcap)."""
        ...

    def new_cache(self, rows: int, width: int) -> KVCache:
        """Allocate an empty cache; contents are finite."""
        ...

    def step(self, token_ids_SQ: Tensor, positions_SQ: Tensor, cache: KVCache) -> Tensor:
        """Write the tokens' keys and values at their positions and return ``hidden_SQH``.

        Inference only. Positions lie in ``[0, cache.width)`` and are distinct within a row.
        """
        ...

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that training may change, by name, in sorted order."""
        ...

    def dropout(self, row_seeds: Sequence[int]) -> AbstractContextManager[None]:
        """Return a context in which training drops what the model's settings say.

        Everything outside it, sampling and scoring included, drops nothing. A backward pass belongs
        inside with its forward pass.

        Args:
            row_seeds: One for each row of the batch, which alone decides the row's masks.
        """
        ...

    def frozen_digest(self) -> str:
        """SHA-256 over the parameters that training must not change."""
        ...

    def gradient_check(self) -> "GradientCheck | None":
        """Compare gradients through quantised layers with those of their dequantised twins.

        Returns:
            The comparison; None where nothing is quantised or nothing is trained.

        Raises:
            BackendError: They disagree.
        """
        ...

    def load_trainable(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the trainable parameters in place; names and shapes must match exactly."""
        ...

    def check_gradients(self) -> None:
        """Say after a backward pass whether it reached what it must and nothing else.

        Raises:
            RoleScopeError: The model shares its base, and another role's adapter was in force.
        """
        ...

    def move_to(self, device: torch.device) -> None:
        """Move every weight to a device; no bit of them changes."""
        ...
