"""Exact divergences over the whole vocabulary.

Naming of the field: *forward* KL is KL(teacher‖student), *reverse* KL is KL(student‖teacher).
Everything is per position, in nats, natural logarithm. Half-precision logits are upcast to float32
before the softmax; float64 stays float64.

A logit of −inf means that a column is excluded. It must be excluded on both sides: a one-sided −inf
would make one of the two KLs infinite, so it is refused. Excluded columns are filled with a large
finite number *before* any arithmetic, because ``0 * inf`` in a masked branch still poisons the
gradient.
"""

import math

import torch
from torch import Tensor

from core.losses.temperature import at_temperature, gain, of_teacher

EXCLUDED = -1e30
"""Log-probability of an excluded column: finite, so differences and products stay finite, and its
exponential is exactly zero in every dtype."""


def forward_kl(
    teacher_logits_NV: Tensor,
    student_logits_NV: Tensor,
    *,
    temperature: float = 1.0,
    scale_by_temperature_squared: bool = True,
) -> Tensor:
    """Return KL(P‖Q) = Σ P (log P − log Q), P the teacher and Q the student at ``temperature``.

    Hinton, Vinyals & Dean 2015 (arXiv 1503.02531), section 2, gives the τ² factor: it keeps the
    gradient's scale when both distributions are near uniform.

    Args:
        teacher_logits_NV: Raw logits of the teacher.
        student_logits_NV: Raw logits of the student, same shape.
        temperature: τ > 0; both logits are divided by it.
        scale_by_temperature_squared: Multiply the result by τ².

    Returns:
        ``[N]`` nats, float32 or wider, non-negative up to rounding.

    Raises:
        ValueError: Shapes differ, τ ≤ 0, or −inf stands on one side only or in a whole row.
    """
    teacher_NV, student_NV = paired_log_probs(teacher_logits_NV, student_logits_NV, temperature)
    return kl_from_log_probs(teacher_NV, student_NV) * gain(
        temperature, scale_by_temperature_squared
    )


def reverse_kl(
    teacher_logits_NV: Tensor,
    student_logits_NV: Tensor,
    *,
    temperature: float = 1.0,
    scale_by_temperature_squared: bool = True,
) -> Tensor:
    """Return KL(Q‖P) = Σ Q (log Q − log P), Q the student.

    The on-policy objective of MiniLLM (Gu et al. 2023, arXiv 2306.08543, equation 1). The τ² factor
    is a convention here, not a derivation.

    Args:
        teacher_logits_NV: Raw logits of the teacher.
        student_logits_NV: Raw logits of the student, same shape.
        temperature: τ > 0; both logits are divided by it.
        scale_by_temperature_squared: Multiply the result by τ².

    Returns:
        ``[N]`` nats, float32 or wider, non-negative up to rounding.

    Raises:
        ValueError: Shapes differ, τ ≤ 0, or −inf stands on one side only or in a whole row.
    """
    teacher_NV, student_NV = paired_log_probs(teacher_logits_NV, student_logits_NV, temperature)
    return kl_from_log_probs(student_NV, teacher_NV) * gain(
        temperature, scale_by_temperature_squared
    )


def jensen_shannon(
    teacher_logits_NV: Tensor,
    student_logits_NV: Tensor,
    *,
    temperature: float = 1.0,
    scale_by_temperature_squared: bool = True,
    teacher_weight: float = 0.5,
) -> Tensor:
    """Return w·KL(P‖M) + (1−w)·KL(Q‖M) with M = w·P + (1−w)·Q.

    Generalised Jensen–Shannon divergence of GKD (Agarwal et al. 2023, arXiv 2306.13649, section
    2), whose β is the weight of the teacher here. Bounded by the entropy of (w, 1−w), ln 2 at 0.5.

    Args:
        teacher_logits_NV: Raw logits of the teacher.
        student_logits_NV: Raw logits of the student, same shape.
        temperature: τ > 0; both logits are divided by it.
        scale_by_temperature_squared: Multiply the result by τ².
        teacher_weight: w, strictly between 0 and 1 (at the ends the value is identically zero).

    Returns:
        ``[N]`` nats, float32 or wider.

    Raises:
        ValueError: As for :func:`forward_kl`, or ``teacher_weight`` outside (0, 1).
    """
    check_teacher_weight(teacher_weight)
    teacher_NV, student_NV = paired_log_probs(teacher_logits_NV, student_logits_NV, temperature)
    value_N = jensen_shannon_from_log_probs(teacher_NV, student_NV, teacher_weight)
    return value_N * gain(temperature, scale_by_temperature_squared)


def entropy(logits_NV: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the Shannon entropy −Σ P log P of ``softmax(logits / temperature)``.

    Args:
        logits_NV: Raw logits; −inf columns count as impossible.
        temperature: τ > 0.

    Returns:
        ``[N]`` nats in [0, ln V].

    Raises:
        ValueError: τ ≤ 0, or a row is −inf throughout.
    """
    scaled_NV = at_temperature(logits_NV, temperature)
    excluded_NV = jointly_excluded(scaled_NV, scaled_NV)
    if excluded_NV is not None:
        scaled_NV = scaled_NV.masked_fill(excluded_NV, EXCLUDED)
    log_probs_NV = scaled_NV.log_softmax(-1)
    return -(log_probs_NV.exp() * log_probs_NV).sum(-1)


def kl_from_log_probs(first_NK: Tensor, second_NK: Tensor) -> Tensor:
    """Return Σ A (log A − log B) for log-probabilities that are finite (see ``EXCLUDED``).

    Args:
        first_NK: log A, normalised over the last axis.
        second_NK: log B, same shape.

    Returns:
        ``[N]`` nats.
    """
    return (first_NK.exp() * (first_NK - second_NK)).sum(-1)


def jensen_shannon_from_log_probs(
    teacher_NK: Tensor, student_NK: Tensor, teacher_weight: float
) -> Tensor:
    """Return w·KL(P‖M) + (1−w)·KL(Q‖M) for finite log-probabilities.

    Args:
        teacher_NK: log P.
        student_NK: log Q.
        teacher_weight: w in (0, 1).

    Returns:
        ``[N]`` nats.
    """
    over_teacher_NK, over_student_NK = mixture_log_ratios(teacher_NK, student_NK, teacher_weight)
    from_teacher_N = (teacher_NK.exp() * over_teacher_NK).sum(-1)
    from_student_N = (student_NK.exp() * over_student_NK).sum(-1)
    return -(teacher_weight * from_teacher_N + (1.0 - teacher_weight) * from_student_N)


def mixture_log_ratios(
    teacher_NK: Tensor, student_NK: Tensor, teacher_weight: float
) -> tuple[Tensor, Tensor]:
    """Return log(M/P) and log(M/Q) of the mixture M = w·P + (1−w)·Q.

    With r = log Q − log P, log(M/P) is log1p((1−w)·expm1(r)) for r ≤ 0, and log(M/Q) is
    log1p(w·expm1(−r)) for r > 0. Taking each on the side where expm1 cannot overflow makes both
    exactly zero at P = Q, which ``logaddexp`` does not.

    Args:
        teacher_NK: log P, finite.
        student_NK: log Q, finite.
        teacher_weight: w in (0, 1).

    Returns:
        Two tensors of the inputs' shape.
    """
    log_ratio_NK = student_NK - teacher_NK
    above_NK = log_ratio_NK.relu()
    # At every entry one of the two logarithms is log1p(0) = 0, in value and (relu has slope 0 at 0,
    # clamp slope 1) in gradient, so the sum selects without a branch.
    below_NK = torch.log1p((1.0 - teacher_weight) * torch.expm1(log_ratio_NK.clamp(max=0.0)))
    shared_NK = below_NK + torch.log1p(teacher_weight * torch.expm1(-above_NK))
    return shared_NK + above_NK, shared_NK + (above_NK - log_ratio_NK)


def paired_log_probs(
    teacher_logits_NV: Tensor,
    student_logits_NV: Tensor,
    temperature: float,
    teacher_temperature: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the two log-softmaxes at their temperatures, excluded columns at ``EXCLUDED``.

    Args:
        teacher_logits_NV: Raw logits of the teacher.
        student_logits_NV: Raw logits of the student, same shape.
        temperature: τ > 0 of the student, and of the teacher by default.
        teacher_temperature: τ > 0 of the teacher, where it differs.

    Returns:
        ``(log P, log Q)``, both finite, in one dtype of at least float32.

    Raises:
        ValueError: Shapes differ, τ ≤ 0, or −inf stands on one side only or in a whole row.
    """
    if teacher_logits_NV.shape != student_logits_NV.shape:
        raise ValueError(
            f"teacher logits have shape {tuple(teacher_logits_NV.shape)} but student logits "
            f"{tuple(student_logits_NV.shape)}: score the same positions over one vocabulary"
        )
    teacher_NV = at_temperature(teacher_logits_NV, of_teacher(teacher_temperature, temperature))
    student_NV = at_temperature(student_logits_NV, temperature)
    dtype = torch.promote_types(teacher_NV.dtype, student_NV.dtype)
    teacher_NV, student_NV = teacher_NV.to(dtype), student_NV.to(dtype)
    excluded_NV = jointly_excluded(teacher_NV, student_NV)
    if excluded_NV is not None:
        teacher_NV = teacher_NV.masked_fill(excluded_NV, EXCLUDED)
        student_NV = student_NV.masked_fill(excluded_NV, EXCLUDED)
    return teacher_NV.log_softmax(-1), student_NV.log_softmax(-1)


def jointly_excluded(teacher_NV: Tensor, student_NV: Tensor) -> Tensor | None:
    """Return the mask of columns that are −inf on both sides, or None where there are none.

    Args:
        teacher_NV: Logits or log-probabilities of the teacher.
        student_NV: The same of the student.

    Returns:
        A boolean mask, or None: the usual case, which then costs no mask at all.

    Raises:
        ValueError: −inf on one side only, or a row without any column left.
    """
    if teacher_NV.numel() == 0 or bool(
        torch.minimum(teacher_NV.amin(), student_NV.amin()) > -math.inf
    ):
        return None
    excluded_NV = teacher_NV == -math.inf
    if bool((excluded_NV != (student_NV == -math.inf)).any()):
        raise ValueError(
            "a column is −inf on one side only: exclude it for teacher and student or for neither"
        )
    if bool(excluded_NV.all(-1).any()):
        raise ValueError("every column of a row is −inf: no distribution is left")
    return excluded_NV


def check_teacher_weight(teacher_weight: float) -> None:
    """Refuse a mixture weight outside the open unit interval.

    Args:
        teacher_weight: Weight of the teacher in the mixture M.

    Raises:
        ValueError: Not strictly between 0 and 1.
    """
    if not 0.0 < teacher_weight < 1.0:
        raise ValueError(
            f"teacher_weight must lie strictly between 0 and 1, got {teacher_weight}; "
            "use forward_kl or reverse_kl for the ends"
        )
