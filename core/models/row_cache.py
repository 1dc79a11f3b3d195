"""Our key and value cache, in the shape that transformers' decoders take."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from core.models.backend import KVCache


class RowCache(Cache):
    """transformers' view of a ``KVCache``: writes at given positions, returns the full width.

    Args:
        cache: Keys and values of all rows; written in place.
        positions_SQ: Where the tokens of this step go.
    """

    def __init__(self, cache: KVCache, positions_SQ: Tensor) -> None:
        super().__init__(layers=[])
        self._cache = cache
        self._positions_SQ = positions_SQ
        self._rows_S1 = torch.arange(positions_SQ.shape[0], device=positions_SQ.device)[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write ``[S, Hkv, Q, D]`` keys and values of one layer and return ``[S, Hkv, W, D]``."""
        del args, kwargs
        keys, values = self._cache.keys[layer_idx], self._cache.values[layer_idx]
        keys[self._rows_S1, :, self._positions_SQ] = key_states.transpose(1, 2)
        values[self._rows_S1, :, self._positions_SQ] = value_states.transpose(1, 2)
        return keys, values


def cache_argument(decoder: nn.Module) -> str:
    """Return the name under which a decoder takes a cache; transformers 5 renamed it on the way."""
    parameters = inspect.signature(decoder.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
