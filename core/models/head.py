"""A decoder's output head, applied to chosen states exactly as the model's own forward pass does.

After the linear layer some families divide the logits by a constant (Granite) or squash them with
``cap * tanh(logits / cap)`` (Gemma 2, https://arxiv.org/abs/2408.00118, section 2). The layer is
called as a module, never read as a matrix: it may have a bias, be tied, or hold 4-bit codes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.errors import ModelSourceError

DISAGREEMENT = {torch.float32: 1e-4}
"""Largest difference between our logits and the model's own, as a share of the largest one."""
ROUNDED_DISAGREEMENT = 1e-2
"""The same in 16 bits."""


@dataclass(frozen=True)
class Head:
    """What follows the linear layer of a head.

    Attributes:
        divisor: Divides the logits; 1 leaves them.
        softcap: Bound of the squashed logits, or None where they are not squashed.
    """

    divisor: float = 1.0
    softcap: float | None = None

    def finish(self, logits_NV: Tensor) -> Tensor:
        """Scale and squash, in the order and the arithmetic of transformers."""
        if self.divisor != 1.0:
            logits_NV = logits_NV / self.divisor
        if self.softcap is not None:
            logits_NV = torch.tanh(logits_NV / self.softcap) * self.softcap
        return logits_NV


def head_of(config: Any) -> Head:
    """Return what a configuration says about the head."""
    return Head(
        divisor=float(getattr(config, "logits_scaling", None) or 1.0),
        softcap=getattr(config, "final_logit_softcapping", None),
    )


@torch.no_grad()
def check_head(
    path: Path, own_1TR: Tensor, states_1TH: Tensor, project: Callable[[Tensor], Tensor]
) -> float:
    """Compare trunk and head with the model's own logits on a few tokens.

    Args:
        path: Named in the error.
        own_1TR: Logits of the model's own forward pass, one per row of its head.
        states_1TH: States of our trunk for the same tokens.
        project: Our head; ``V`` rows, surplus rows cut off.

    Returns:
        Largest probability that head rows without a token have.

    Raises:
        ModelSourceError: The logits differ or are not finite.
    """
    ours_1TV = project(states_1TH)
    vocab_size = ours_1TV.shape[-1]
    own_1TV = own_1TR[..., :vocab_size]
    scale = own_1TV.abs().max()
    allowed = DISAGREEMENT.get(own_1TV.dtype, ROUNDED_DISAGREEMENT) * scale
    if not torch.isfinite(scale) or not bool((own_1TV - ours_1TV).abs().max() <= allowed):
        raise ModelSourceError(
            f"{path}: trunk and head do not give the model's own logits, or these are not finite",
            "The weights are damaged or scaled in a way that does not run here; use another model.",
        )
    surplus_1TR = own_1TR.float().softmax(-1)[..., vocab_size:]
    return float(surplus_1TR.sum(-1).max())
