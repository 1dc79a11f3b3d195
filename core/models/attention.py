"""Attention of engine steps on a CPU in float32: plain products, whose bits know no neighbours.

torch's fused CPU kernel gives each thread a scratch buffer, and its products depend on how that
buffer happens to be aligned: with two threads a row's last bits change when it moves to the other
half of a batch. Two plain batched products and a softmax do not, and for a few query tokens they
are no slower. Everything else (training, scoring, other types and devices) takes the fused kernel.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ROWWISE = "opd_rowwise"
"""Name under which transformers finds ``rowwise_attention``."""


def rowwise_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend from ``[S, H, Q, D]`` queries to ``[S, Hkv, W, D]`` keys and values.

    Args:
        module: The layer; says how many query heads share one key head.
        query: ``[S, H, Q, D]``.
        key: ``[S, Hkv, W, D]``.
        value: ``[S, Hkv, W, D]``.
        attention_mask: Additive ``[S, 1, Q, W]`` of an engine step, a boolean one of a whole row
            with a window, or None for plain causal attention.
        scaling: Factor of the scores; None is ``D ** -0.5``.
        **kwargs: For the fused kernel.

    Returns:
        ``[S, Q, H, D]``, and no attention weights.
    """
    if attention_mask is None or attention_mask.dtype is torch.bool or not _is_plain(query):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    rows, heads, tokens, width = query.shape
    # Heads that share a key head become more query tokens, so that keys are not copied.
    packed = query.reshape(rows, key.shape[1], -1, width)
    mask = attention_mask.repeat(1, 1, heads // key.shape[1], 1)
    factor = width**-0.5 if scaling is None else scaling
    scores = torch.matmul(packed, key.transpose(2, 3)).mul_(factor).add_(mask)
    mixed = torch.matmul(scores.softmax(-1), value)
    return mixed.view(rows, heads, tokens, width).transpose(1, 2).contiguous(), None


def _is_plain(query: Tensor) -> bool:
    return query.device.type == "cpu" and query.dtype is torch.float32


AttentionInterface.register(ROWWISE, rowwise_attention)
# Without it, layers with a window would be given no mask and would see the whole row.
AttentionMaskInterface.register(ROWWISE, sdpa_mask)
