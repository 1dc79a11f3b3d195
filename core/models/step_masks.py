"""Which key slots a query of an engine step sees: slots 0 to p, or the last ones of them."""

from typing import Any

import torch
from torch import Tensor

from core.models.source import SLIDING

FULL = "full_attention"


def sliding_window(config: Any) -> int | None:
    """Return the width of a configuration's local layers, or None where every layer sees all."""
    if SLIDING not in (getattr(config, "layer_types", None) or ()):
        return None
    return int(config.sliding_window)


def step_mask(
    positions_SQ: Tensor, width: int, dtype: torch.dtype, window: int | None
) -> Tensor | dict[str, Tensor]:
    """Return the additive mask of a step; with local layers one mask for each kind of layer.

    Args:
        positions_SQ: Position of each query; slot ``w`` of its row holds the token at ``w``.
        width: Key slots W.
        dtype: Arithmetic of the scores.
        window: Positions that a local layer sees, its own included; None for no local layers.

    Returns:
        ``[S, 1, Q, W]``: 0 where the query sees, −inf elsewhere. Slot p is always seen, so no row
        is empty.
    """
    slots_W = torch.arange(width, device=positions_SQ.device)
    hidden_SQW = slots_W > positions_SQ[..., None]
    full_S1QW = _additive(hidden_SQW, dtype)
    if window is None:
        return full_S1QW
    far_SQW = slots_W <= positions_SQ[..., None] - window
    return {FULL: full_S1QW, SLIDING: _additive(hidden_SQW | far_SQW, dtype)}


def _additive(hidden_SQW: Tensor, dtype: torch.dtype) -> Tensor:
    mask_S1QW = torch.zeros(hidden_SQW[:, None].shape, dtype=dtype, device=hidden_SQW.device)
    return mask_S1QW.masked_fill_(hidden_SQW[:, None], -torch.inf)
