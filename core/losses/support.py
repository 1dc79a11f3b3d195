"""Splitting a distribution into chosen tokens and one tail, without subtracting masses.

The tail is the logsumexp of the logits outside the support. One minus the kept mass would have a
floor of eps (−15.94 nats in float32) and an error of the same size; this has neither.
"""

import math

import torch
from torch import Tensor

from core.losses.divergence import EXCLUDED, jointly_excluded
from core.losses.temperature import at_temperature


def split_support(
    logits_NV: Tensor, support_ids_NK: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities at the support and the log of the mass outside it.

    Args:
        logits_NV: Raw logits.
        support_ids_NK: Token ids, distinct within a row.
        temperature: τ > 0.

    Returns:
        ``[N, k]`` and ``[N]`` nats; the second is −inf where no column is outside.

    Raises:
        ValueError: τ ≤ 0, or a row is −inf throughout.
    """
    scaled_NV = _finite(logits_NV, temperature)
    total_N1 = scaled_NV.logsumexp(-1, keepdim=True)
    ids_NK = support_ids_NK.long()
    support_NK = scaled_NV.gather(-1, ids_NK) - total_N1
    tail_N = scaled_NV.scatter(-1, ids_NK, EXCLUDED).logsumexp(-1) - total_N1.squeeze(-1)
    return _restore_empty(support_NK), _restore_empty(tail_N)


def split_columns(
    logits_NV: Tensor, column_ids_S: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities at the same columns of every row and the log of the other mass.

    Args:
        logits_NV: Raw logits.
        column_ids_S: Token ids, distinct.
        temperature: τ > 0.

    Returns:
        ``[N, S]`` and ``[N]`` nats; the second is −inf where no column is outside.

    Raises:
        ValueError: τ ≤ 0, or a row is −inf throughout.
    """
    scaled_NV = _finite(logits_NV, temperature)
    total_N1 = scaled_NV.logsumexp(-1, keepdim=True)
    ids_S = column_ids_S.long()
    columns_NS = scaled_NV.index_select(-1, ids_S) - total_N1
    rest_N = scaled_NV.index_fill(-1, ids_S, EXCLUDED).logsumexp(-1) - total_N1.squeeze(-1)
    return _restore_empty(columns_NS), _restore_empty(rest_N)


def _finite(logits_NV: Tensor, temperature: float) -> Tensor:
    """Return scaled logits with finite stand-ins in excluded columns."""
    scaled_NV = at_temperature(logits_NV, temperature)
    excluded_NV = jointly_excluded(scaled_NV, scaled_NV)
    return scaled_NV if excluded_NV is None else scaled_NV.masked_fill(excluded_NV, EXCLUDED)


def _restore_empty(log_probs: Tensor) -> Tensor:
    """Return −inf where the finite stand-in of an excluded column shows."""
    return log_probs.masked_fill(log_probs < 0.5 * EXCLUDED, -math.inf)


def join_tail(support_NK: Tensor, tail_N: Tensor) -> Tensor:
    """Return support and tail as one row of categories, the tail last.

    Args:
        support_NK: Log-probabilities of the support.
        tail_N: Log of the mass outside it.

    Returns:
        ``[N, k + 1]``.
    """
    return torch.cat([support_NK, tail_N.unsqueeze(-1)], dim=-1)


def smoothed_pair(
    teacher_NC: Tensor, student_NC: Tensor, tail_epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return both sides with their tails raised to ``tail_epsilon``, normalised and finite.

    Args:
        teacher_NC: Log-probabilities, the tail in the last column.
        student_NC: The same of the student.
        tail_epsilon: Smallest tail probability, unless both tails of a row are empty.

    Returns:
        ``(log P, log Q)``.

    Raises:
        ValueError: ``tail_epsilon`` outside (0, 1), or −inf in the support on one side only.
    """
    if not 0.0 < tail_epsilon < 1.0:
        raise ValueError(f"tail_epsilon must lie in (0, 1), got {tail_epsilon}")
    both_empty_N = (teacher_NC[:, -1] == -math.inf) & (student_NC[:, -1] == -math.inf)
    floor = math.log(tail_epsilon)
    teacher_NC = _floor_tail(teacher_NC, both_empty_N, floor)
    student_NC = _floor_tail(student_NC, both_empty_N, floor)
    excluded_NC = jointly_excluded(teacher_NC, student_NC)
    if excluded_NC is not None:
        teacher_NC = teacher_NC.masked_fill(excluded_NC, EXCLUDED)
        student_NC = student_NC.masked_fill(excluded_NC, EXCLUDED)
    return teacher_NC.log_softmax(-1), student_NC.log_softmax(-1)


def _floor_tail(log_probs_NC: Tensor, keep_empty_N: Tensor, floor: float) -> Tensor:
    tail_N = log_probs_NC[:, -1].clamp(min=floor).masked_fill(keep_empty_N, -math.inf)
    return torch.cat([log_probs_NC[:, :-1], tail_N.unsqueeze(-1)], dim=-1)
