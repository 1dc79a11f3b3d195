"""verl's ``forward_kl_topk``: a compatibility mode, not a divergence.

The sum runs over the teacher's top-k tokens alone, without a tail and without renormalising. It can
be negative; verl clamps it at zero, and where it clamps the gradient is gone. Its gradient at
student = teacher is not zero either: it pushes mass into the support. ``buckets.forward_kl`` has
neither fault at the same cost; this is here so that a verl run can be reproduced and diagnosed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.losses.divergence import EXCLUDED, jointly_excluded
from core.losses.support import split_support
from core.losses.targets import BucketTargets


@dataclass(frozen=True)
class TruncationDiagnostics:
    """What verl logs beside the loss; per position, detached."""

    student_mass_N: Tensor
    """Probability that the student puts on the support."""
    teacher_mass_N: Tensor
    overlap_count_N: Tensor
    """Support tokens that are also in the student's top-k."""
    overlap_token_advantage_N: Tensor
    """Mean of −term over those tokens; 0 where there are none."""
    clamped_N: Tensor
    """Positions whose sum was negative, and whose gradient is therefore lost."""


def truncated_forward_kl(
    targets: BucketTargets,
    student_logits_NV: Tensor,
    *,
    log_prob_min_clamp: float | None = None,
    loss_max_clamp: float | None = None,
) -> tuple[Tensor, TruncationDiagnostics]:
    """Return max(0, Σ_{v∈top-k} P_v (log P_v − log Q_v)) and its diagnostics.

    verl v0.8 ``distillation_loss`` with ``loss_mode=forward_kl_topk``.

    Args:
        targets: The teacher's support, taken at temperature 1; its tail is not read.
        student_logits_NV: Raw logits of the student.
        log_prob_min_clamp: Floor of both sides' log-probabilities before the sum, ≤ 0.
        loss_max_clamp: Ceiling of the result, > 0.

    Returns:
        ``[N]`` nats, and diagnostics.

    Raises:
        ValueError: Targets at another temperature, a clamp of the wrong sign, or −inf on one side
            only.
    """
    _check(targets, log_prob_min_clamp, loss_max_clamp)
    student_NK, _ = split_support(student_logits_NV, targets.support_ids_NK, 1.0)
    dtype = torch.promote_types(student_NK.dtype, targets.support_logprobs_NK.dtype)
    teacher_NK, student_NK = targets.support_logprobs_NK.to(dtype), student_NK.to(dtype)
    excluded_NK = jointly_excluded(teacher_NK, student_NK)
    if excluded_NK is not None:
        teacher_NK = teacher_NK.masked_fill(excluded_NK, EXCLUDED)
        student_NK = student_NK.masked_fill(excluded_NK, EXCLUDED)
    masses = teacher_NK.exp().sum(-1), student_NK.detach().exp().sum(-1)
    if log_prob_min_clamp is not None:
        teacher_NK = teacher_NK.clamp(min=log_prob_min_clamp)
        student_NK = student_NK.clamp(min=log_prob_min_clamp)
    terms_NK = teacher_NK.exp() * (teacher_NK - student_NK)
    sum_N = terms_NK.sum(-1)
    diagnostics = _diagnostics(targets, student_logits_NV, terms_NK.detach(), masses)
    return sum_N.clamp(min=0.0, max=loss_max_clamp), diagnostics


def _check(
    targets: BucketTargets, log_prob_min_clamp: float | None, loss_max_clamp: float | None
) -> None:
    if targets.temperature != 1.0:
        raise ValueError(f"forward_kl_topk is defined at temperature 1, not {targets.temperature}")
    if log_prob_min_clamp is not None and log_prob_min_clamp > 0:
        raise ValueError(f"log_prob_min_clamp must be at most 0, got {log_prob_min_clamp}")
    if loss_max_clamp is not None and loss_max_clamp <= 0:
        raise ValueError(f"loss_max_clamp must be positive, got {loss_max_clamp}")


@torch.no_grad()
def _diagnostics(
    targets: BucketTargets,
    student_logits_NV: Tensor,
    terms_NK: Tensor,
    masses: tuple[Tensor, Tensor],
) -> TruncationDiagnostics:
    support_NK = targets.support_ids_NK.long()
    own_NK = student_logits_NV.topk(support_NK.shape[-1], dim=-1).indices
    is_shared_NK = (support_NK.unsqueeze(-1) == own_NK.unsqueeze(-2)).any(-1)
    count_N = is_shared_NK.sum(-1)
    advantage_N = -(terms_NK * is_shared_NK).sum(-1) / count_N.clamp(min=1)
    return TruncationDiagnostics(
        student_mass_N=masses[1],
        teacher_mass_N=masses[0],
        overlap_count_N=count_N,
        overlap_token_advantage_N=advantage_N,
        clamped_N=terms_NK.sum(-1) < 0,
    )
