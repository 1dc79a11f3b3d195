"""What the device knows of each physical row: its cache, cursor, next token and noise."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.models.backend import Backend, KVCache
from core.rollout.noise import uniforms
from core.rollout.shape import EngineShape


def window(cache: KVCache, start: int, stop: int, width: int) -> KVCache:
    """Return rows ``[start, stop)`` and slots ``[0, width)`` of a cache as views into it."""
    return KVCache(
        keys=[tensor[start:stop, :, :width] for tensor in cache.keys],
        values=[tensor[start:stop, :, :width] for tensor in cache.values],
    )


@dataclass(frozen=True)
class Window:
    """Views of some rows, made once: slicing all tensors in each step would cost like a layer."""

    token_ids_S1: Tensor
    cursors_S1: Tensor
    drawn_S1: Tensor
    uniforms_SM: Tensor
    cache: KVCache


class Rows:
    """Device state of all physical rows.

    A row that is not sampling still takes part in every step of its window: what it writes lies at
    its cursor, where its next real token goes.

    Args:
        backend: Allocates the cache.
        shape: Sizes of the engine's steps.
        rows: How many rows to hold, at most ``shape.rows``.
        max_new_tokens: Most tokens of one turn.
    """

    def __init__(
        self, backend: Backend, shape: EngineShape, rows: int, max_new_tokens: int
    ) -> None:
        device = backend.device
        self.cache = backend.new_cache(rows, shape.width)
        self.token_ids_S1 = torch.zeros((rows, 1), dtype=torch.int64, device=device)
        # Tokens in the cache and tokens drawn this turn, side by side: one addition moves both.
        self.counters_2S = torch.zeros((2, rows), dtype=torch.int64, device=device)
        self.sampling_S = torch.zeros(rows, dtype=torch.int64, device=device)
        # One column more than a turn can use, for the row that has just used them all.
        self.uniforms_SM = torch.full(
            (rows, max_new_tokens + 1), 0.5, dtype=torch.float64, device=device
        )
        self._offsets_C = torch.arange(shape.block, device=device)
        self._windows: dict[tuple[int, int, int], Window] = {}

    def window(self, start: int, stop: int, width: int) -> Window:
        """Return the views of rows ``[start, stop)`` with ``width`` key slots."""
        key = (start, stop, width)
        if key not in self._windows:
            self._windows[key] = Window(
                token_ids_S1=self.token_ids_S1[start:stop],
                cursors_S1=self.counters_2S[0, start:stop, None],
                drawn_S1=self.counters_2S[1, start:stop, None],
                uniforms_SM=self.uniforms_SM[start:stop],
                cache=window(self.cache, start, stop, width),
            )
        return self._windows[key]

    def block_positions(self, window: Window) -> Tensor:
        """Return the positions ``[S, C]`` of the next block of every row of a window."""
        return window.cursors_S1 + self._offsets_C

    def place(self, row: int, cursor: int) -> None:
        """Say that a row holds ``cursor`` tokens."""
        self.counters_2S[0, row] = cursor

    def move(self, source: int, target: int, length: int) -> None:
        """Put all that is known of a row, and the first ``length`` slots, into another row."""
        self.cache.copy_row(self.cache, source, target, length)
        for tensor in (self.token_ids_S1, self.sampling_S, self.uniforms_SM):
            tensor[target] = tensor[source]
        self.counters_2S[:, target] = self.counters_2S[:, source]
        self.sampling_S[source] = 0
        self.counters_2S[:, source] = 0

    def start_sampling(
        self, rows: Sequence[int], token_ids: Sequence[int], keys: Sequence[int] | None
    ) -> None:
        """Let rows sample from the next step on.

        Args:
            rows: The rows.
            token_ids: Last context token of each, the first that they feed.
            keys: Key of each row's noise; None where nothing is random.
        """
        facts = torch.tensor([rows, token_ids, keys or rows], device=self.sampling_S.device)
        rows_R, token_ids_R, keys_R = facts
        self.token_ids_S1[rows_R, 0] = token_ids_R
        self.counters_2S[1, rows_R] = 0
        self.sampling_S[rows_R] = 1
        if keys is not None:
            self.uniforms_SM[rows_R] = uniforms(keys_R, self.uniforms_SM.shape[1])

    def stop_sampling(self, row: int) -> None:
        """Let a row rest where it is."""
        self.sampling_S[row] = 0

    def count_step(self) -> None:
        """Move the cursor and the noise of every sampling row by one token."""
        self.counters_2S += self.sampling_S
