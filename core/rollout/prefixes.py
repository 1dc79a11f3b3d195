"""Keys and values of prefixes that episodes share, prefilled once each."""

from collections import OrderedDict
from collections.abc import Sequence
from math import ceil

import torch
from torch import Tensor

from core.models.backend import Backend, KVCache
from core.rollout.shape import EngineShape

CAPACITY = 8
"""Prefixes kept: worlds have one system prompt, or few."""


class Prefixes:
    """A cache of shared prefixes; the least recently used one makes room.

    A prefix is always computed in the same shape and company, so it has the same bits whenever it
    is computed.

    Args:
        backend: Computes them.
        shape: Sizes of the engine's steps.
    """

    def __init__(self, backend: Backend, shape: EngineShape) -> None:
        self._backend = backend
        self._shape = shape
        self._known: OrderedDict[tuple[int, ...], KVCache] = OrderedDict()

    def copy_into(self, cache: KVCache, row: int, token_ids: Sequence[int]) -> None:
        """Put keys and values of ``token_ids`` into the first slots of a row."""
        key = tuple(token_ids)
        if key not in self._known:
            self._known[key] = self._prefill(key)
        self._known.move_to_end(key)
        if len(self._known) > CAPACITY:
            self._known.popitem(last=False)
        cache.copy_row(self._known[key], 0, row, len(key))

    def _prefill(self, token_ids: Sequence[int]) -> KVCache:
        block, rows = self._shape.block, self._shape.group
        width = ceil(len(token_ids) / block) * block
        cache = self._backend.new_cache(rows, width)
        padded_SW = torch.zeros((rows, width), dtype=torch.int64)
        padded_SW[0, : len(token_ids)] = torch.tensor(token_ids)
        padded_SW = padded_SW.to(self._backend.device)
        for start in range(0, width, block):
            positions_C = torch.arange(start, start + block, device=self._backend.device)
            block_SC = padded_SW[:, start : start + block]
            self._backend.step(block_SC, positions_C.expand(rows, block), cache)
        return KVCache(keys=_first_row(cache.keys), values=_first_row(cache.values))


def _first_row(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor[:1].clone() for tensor in tensors]
