"""Objectives that mix the two directions of KL or the two distributions.

All take finite log-probabilities over the same categories, whole vocabulary or buckets alike, and
return nats per position without a τ² factor.
"""

import torch
from torch import Tensor

from core.losses.divergence import (
    check_teacher_weight,
    jensen_shannon_from_log_probs,
    kl_from_log_probs,
    mixture_log_ratios,
)


def rescaled_jensen_shannon(
    teacher_NC: Tensor, student_NC: Tensor, teacher_weight: float
) -> Tensor:
    """Return JSD_w / (w·(1−w)), which keeps its scale toward both ends.

    It tends to KL(P‖Q) for w → 0 and to KL(Q‖P) for w → 1. There the plain JSD (Lin 1991, IEEE
    Transactions on Information Theory 37(1), section IV) vanishes linearly, so that sweeping its w
    sweeps the learning rate.

    Args:
        teacher_NC: log P.
        student_NC: log Q.
        teacher_weight: w in (0, 1).

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: ``teacher_weight`` outside (0, 1).
    """
    check_teacher_weight(teacher_weight)
    scale = teacher_weight * (1.0 - teacher_weight)
    return jensen_shannon_from_log_probs(teacher_NC, student_NC, teacher_weight) / scale


def skew_forward_kl(teacher_NC: Tensor, student_NC: Tensor, skew: float) -> Tensor:
    """Return KL(P ‖ α·P + (1−α)·Q): forward KL with a bounded ratio, at most ln(1/α).

    DistiLLM, Ko et al. 2024 (arXiv 2402.03898), section 3.1.

    Args:
        teacher_NC: log P.
        student_NC: log Q.
        skew: α in (0, 1); 0.1 in the paper.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: α outside (0, 1).
    """
    _check_skew(skew)
    over_teacher_NC, _ = mixture_log_ratios(teacher_NC, student_NC, skew)
    return -(teacher_NC.exp() * over_teacher_NC).sum(-1)


def skew_reverse_kl(teacher_NC: Tensor, student_NC: Tensor, skew: float) -> Tensor:
    """Return KL(Q ‖ (1−α)·P + α·Q): reverse KL with a bounded ratio, at most ln(1/α).

    DistiLLM, Ko et al. 2024 (arXiv 2402.03898), section 3.1.

    Args:
        teacher_NC: log P.
        student_NC: log Q.
        skew: α in (0, 1); 0.1 in the paper.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: α outside (0, 1).
    """
    _check_skew(skew)
    _, over_student_NC = mixture_log_ratios(teacher_NC, student_NC, 1.0 - skew)
    return -(student_NC.exp() * over_student_NC).sum(-1)


def adaptive_kl(teacher_NC: Tensor, student_NC: Tensor, head_mass: float) -> Tensor:
    """Return g·KL(P‖Q) + (1−g)·KL(Q‖P), g the share of |P − Q| in the teacher's head.

    Wu et al. 2024 (arXiv 2404.02657): the forward direction fits the head first and the
    reverse the tail, so each is weighed by where the gap is. The head is the smallest set of most
    probable tokens whose mass reaches μ; the paper's code leaves the token that crosses μ outside,
    unless it is the first. As in the paper, g is a constant for the gradient. Where student and
    teacher agree the gap is 0/0; g is then 1/2, and both terms are zero anyway.

    Args:
        teacher_NC: log P.
        student_NC: log Q.
        head_mass: μ in (0, 1); 0.5 in the paper.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: μ outside (0, 1).
    """
    if not 0.0 < head_mass < 1.0:
        raise ValueError(f"head_mass must lie strictly between 0 and 1, got {head_mass}")
    share_N = _head_share(teacher_NC, student_NC, head_mass)
    forward_N = kl_from_log_probs(teacher_NC, student_NC)
    reverse_N = kl_from_log_probs(student_NC, teacher_NC)
    return share_N * forward_N + (1.0 - share_N) * reverse_N


def entropy_aware_kl(
    teacher_NC: Tensor, student_NC: Tensor, teacher_entropy_N: Tensor, threshold: float
) -> Tensor:
    """Return KL(Q‖P) + 1[H(P) > threshold]·KL(P‖Q).

    Jin et al. 2026 (arXiv 2603.07079): reverse KL everywhere, and forward KL on top where the
    teacher itself is undecided, so that the student keeps the plausible alternatives. The gate
    reads the teacher only, so the gradient is exact. The paper's reverse KL is a clipped sample and
    its forward KL a truncated sum; here both are over all categories.

    Args:
        teacher_NC: log P.
        student_NC: log Q.
        teacher_entropy_N: H(P) over the whole vocabulary, nats.
        threshold: Nats above which a position counts as undecided, ≥ 0.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: A negative threshold.
    """
    if not threshold >= 0.0:
        raise ValueError(f"entropy_threshold must be non-negative, got {threshold}")
    undecided_N = (teacher_entropy_N.detach() > threshold).to(teacher_NC.dtype)
    forward_N = kl_from_log_probs(teacher_NC, student_NC)
    return kl_from_log_probs(student_NC, teacher_NC) + undecided_N * forward_N


def _check_skew(skew: float) -> None:
    if not 0.0 < skew < 1.0:
        raise ValueError(f"skew must lie strictly between 0 and 1, got {skew}")


@torch.no_grad()
def _head_share(teacher_NC: Tensor, student_NC: Tensor, head_mass: float) -> Tensor:
    probs_NC, order_NC = teacher_NC.exp().sort(dim=-1, descending=True)
    gap_NC = (probs_NC - student_NC.exp().gather(-1, order_NC)).abs()
    is_head_NC = probs_NC.cumsum(-1) - probs_NC < head_mass
    head_N, total_N = (gap_NC * is_head_NC).sum(-1), gap_NC.sum(-1)
    return torch.where(total_N > 0, head_N / total_N.clamp(min=1e-30), 0.5)
