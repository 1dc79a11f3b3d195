"""Divergences on the teacher's top-k tokens plus one bucket for everything else.

Merging all other tokens into one bucket makes two proper distributions over k + 1 categories, so by
the log-sum inequality (Cover & Thomas 2006, theorem 2.7.1) each KL is a lower bound of the exact
one, grows with k and reaches it at k = V − 1. Truncation without the bucket has neither property:
it can be negative, and its minimum lies where the student has left the support.
"""

import torch
from torch import Tensor

from core.losses.divergence import (
    check_teacher_weight,
    jensen_shannon_from_log_probs,
    kl_from_log_probs,
)
from core.losses.divergence import entropy as exact_entropy
from core.losses.support import join_tail, smoothed_pair, split_support
from core.losses.targets import BucketTargets
from core.losses.temperature import gain, of_teacher

TAIL_EPSILON = 1e-9
"""Smallest probability of the tail bucket: it bounds the reverse KL that a teacher without a tail
can charge by ln(1/epsilon) = 20.7 nats."""


def top_k_targets(teacher_logits_NV: Tensor, top_k: int, temperature: float = 1.0) -> BucketTargets:
    """Keep the teacher's ``min(top_k, V)`` most probable tokens and the mass of the rest.

    Args:
        teacher_logits_NV: Raw logits.
        top_k: Support size, at least 1.
        temperature: τ > 0.

    Returns:
        Targets in descending probability, without gradient.

    Raises:
        ValueError: ``top_k`` < 1, τ ≤ 0, or a row is −inf throughout.
    """
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    k = min(top_k, teacher_logits_NV.shape[-1])
    support_ids_NK = teacher_logits_NV.detach().topk(k, dim=-1).indices
    return support_targets(teacher_logits_NV, support_ids_NK, temperature)


@torch.no_grad()
def support_targets(
    teacher_logits_NV: Tensor, support_ids_NK: Tensor, temperature: float = 1.0
) -> BucketTargets:
    """Keep the teacher's probabilities at given token ids and the mass of the rest.

    Args:
        teacher_logits_NV: Raw logits.
        support_ids_NK: Token ids, distinct within a row.
        temperature: τ > 0.

    Returns:
        Targets in the order of the ids.

    Raises:
        ValueError: τ ≤ 0, or a row is −inf throughout.
    """
    support_NK, tail_N = split_support(teacher_logits_NV, support_ids_NK, temperature)
    return BucketTargets(
        support_ids_NK=support_ids_NK,
        support_logprobs_NK=support_NK,
        tail_logprob_N=tail_N,
        entropy_N=exact_entropy(teacher_logits_NV, temperature=temperature),
        temperature=temperature,
    )


def forward_kl(
    targets: BucketTargets,
    student_logits_NV: Tensor,
    *,
    temperature: float | None = None,
    scale_by_temperature_squared: bool = True,
    tail_epsilon: float = TAIL_EPSILON,
) -> Tensor:
    """Return KL(teacher‖student) over the k + 1 categories.

    Args:
        targets: The teacher's categories.
        student_logits_NV: Raw logits of the student over the whole vocabulary.
        temperature: τ; the targets' own by default, and it must equal it.
        scale_by_temperature_squared: Multiply the result by τ².
        tail_epsilon: Smallest tail probability, see ``TAIL_EPSILON``.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: Temperatures or row counts differ, ``tail_epsilon`` outside (0, 1), or a −inf on
            one side only.
    """
    teacher_NC, student_NC = paired_categories(
        targets, student_logits_NV, temperature, tail_epsilon
    )
    return kl_from_log_probs(teacher_NC, student_NC) * gain(
        targets.temperature, scale_by_temperature_squared
    )


def reverse_kl(
    targets: BucketTargets,
    student_logits_NV: Tensor,
    *,
    temperature: float | None = None,
    scale_by_temperature_squared: bool = True,
    tail_epsilon: float = TAIL_EPSILON,
) -> Tensor:
    """Return KL(student‖teacher) over the k + 1 categories.

    Args:
        targets: The teacher's categories.
        student_logits_NV: Raw logits of the student over the whole vocabulary.
        temperature: τ; the targets' own by default, and it must equal it.
        scale_by_temperature_squared: Multiply the result by τ².
        tail_epsilon: Smallest tail probability, see ``TAIL_EPSILON``.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: As for :func:`forward_kl`.
    """
    teacher_NC, student_NC = paired_categories(
        targets, student_logits_NV, temperature, tail_epsilon
    )
    return kl_from_log_probs(student_NC, teacher_NC) * gain(
        targets.temperature, scale_by_temperature_squared
    )


def jensen_shannon(
    targets: BucketTargets,
    student_logits_NV: Tensor,
    *,
    temperature: float | None = None,
    scale_by_temperature_squared: bool = True,
    teacher_weight: float = 0.5,
    tail_epsilon: float = TAIL_EPSILON,
) -> Tensor:
    """Return w·KL(P‖M) + (1−w)·KL(Q‖M) over the k + 1 categories, P the teacher.

    Args:
        targets: The teacher's categories.
        student_logits_NV: Raw logits of the student over the whole vocabulary.
        temperature: τ; the targets' own by default, and it must equal it.
        scale_by_temperature_squared: Multiply the result by τ².
        teacher_weight: w, strictly between 0 and 1.
        tail_epsilon: Smallest tail probability, see ``TAIL_EPSILON``.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: As for :func:`forward_kl`, or ``teacher_weight`` outside (0, 1).
    """
    check_teacher_weight(teacher_weight)
    teacher_NC, student_NC = paired_categories(
        targets, student_logits_NV, temperature, tail_epsilon
    )
    value_N = jensen_shannon_from_log_probs(teacher_NC, student_NC, teacher_weight)
    return value_N * gain(targets.temperature, scale_by_temperature_squared)


def bucket_entropy(targets: BucketTargets, tail_epsilon: float = TAIL_EPSILON) -> Tensor:
    """Return the entropy of the teacher's k + 1 categories: a lower bound of ``entropy_N``.

    Args:
        targets: The teacher's categories.
        tail_epsilon: Smallest tail probability where a tail exists.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: ``tail_epsilon`` outside (0, 1).
    """
    teacher_NC = join_tail(targets.support_logprobs_NK, targets.tail_logprob_N)
    teacher_NC, _ = smoothed_pair(teacher_NC, teacher_NC, tail_epsilon)
    return -(teacher_NC.exp() * teacher_NC).sum(-1)


def paired_categories(
    targets: BucketTargets,
    student_logits_NV: Tensor,
    temperature: float | None,
    tail_epsilon: float,
    teacher_temperature: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return both sides' log-probabilities over support and tail, normalised and finite.

    Rows in which both tails are empty keep their k categories unsmoothed. Elsewhere a tail below
    ``tail_epsilon`` is raised to it and the row is renormalised.

    Args:
        targets: The teacher's categories.
        student_logits_NV: Raw logits of the student.
        temperature: τ of the student, or None for the targets' own.
        tail_epsilon: Smallest tail probability.
        teacher_temperature: τ that the targets must have been taken at, where it is another.

    Returns:
        ``(log P, log Q)``, each ``[N, k + 1]``.

    Raises:
        ValueError: As for :func:`forward_kl`.
    """
    temperature = targets.temperature if temperature is None else temperature
    expected = of_teacher(teacher_temperature, temperature)
    if expected != targets.temperature:
        raise ValueError(
            f"temperature {expected} differs from {targets.temperature}, at which the targets "
            "were taken: score the teacher again"
        )
    if student_logits_NV.shape[0] != len(targets):
        raise ValueError(f"{len(targets)} targets but {student_logits_NV.shape[0]} student rows")
    student_NC = join_tail(*split_support(student_logits_NV, targets.support_ids_NK, temperature))
    teacher_NC = join_tail(targets.support_logprobs_NK, targets.tail_logprob_N)
    dtype = torch.promote_types(
        torch.promote_types(teacher_NC.dtype, torch.float32), student_NC.dtype
    )
    return smoothed_pair(teacher_NC.to(dtype), student_NC.to(dtype), tail_epsilon)
