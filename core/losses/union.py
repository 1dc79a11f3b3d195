"""Categories on the union of the teacher's and the student's top-k tokens, plus one tail.

A support that the teacher chose alone is blind where the student puts its mass; one that the
student chose alone (verl pull request 7590) is blind where the teacher does. A local teacher can be
read at any id, so both choose.
"""

import torch
from torch import Tensor

from core.losses.support import join_tail, smoothed_pair, split_support
from core.losses.temperature import of_teacher


def union_support(
    teacher_logits_NV: Tensor, student_logits_NV: Tensor, top_k: int
) -> tuple[Tensor, Tensor]:
    """Return the 2k chosen ids per row and which of them repeat an earlier one.

    Args:
        teacher_logits_NV: Raw logits of the teacher.
        student_logits_NV: Raw logits of the student.
        top_k: Tokens that each side chooses, at least 1; at most V are used.

    Returns:
        Ids ``[N, 2k]``, the teacher's first, and a mask of the student's choices that the teacher
        also made. Neither carries a gradient: the support is constant between two ties.

    Raises:
        ValueError: ``top_k`` < 1.
    """
    if top_k < 1:
        raise ValueError(f"union_top_k must be at least 1, got {top_k}")
    k = min(top_k, teacher_logits_NV.shape[-1])
    teacher_ids_NK = teacher_logits_NV.detach().topk(k, dim=-1).indices
    student_ids_NK = student_logits_NV.detach().topk(k, dim=-1).indices
    shared_NK = (student_ids_NK.unsqueeze(-1) == teacher_ids_NK.unsqueeze(-2)).any(-1)
    repeated_N2K = torch.cat([torch.zeros_like(shared_NK), shared_NK], dim=-1)
    return torch.cat([teacher_ids_NK, student_ids_NK], dim=-1), repeated_N2K


def paired_union_categories(
    teacher_logits_NV: Tensor,
    student_logits_NV: Tensor,
    top_k: int,
    temperature: float,
    tail_epsilon: float,
    teacher_temperature: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return both sides' log-probabilities over the union support and its tail.

    Merging the tail makes two proper distributions, so a KL of them is at most the exact one and at
    least the one on either support alone.

    Args:
        teacher_logits_NV: Raw logits of the teacher.
        student_logits_NV: Raw logits of the student, same shape.
        top_k: Tokens that each side chooses.
        temperature: τ > 0 of the student, and of the teacher by default.
        tail_epsilon: Smallest tail probability.
        teacher_temperature: τ > 0 of the teacher, where it differs.

    Returns:
        ``(log P, log Q)``, each ``[N, 2k + 1]``, finite; repeated ids hold no mass.

    Raises:
        ValueError: Shapes differ, ``top_k`` < 1, τ ≤ 0, ``tail_epsilon`` outside (0, 1), or −inf on
            one side only.
    """
    if teacher_logits_NV.shape != student_logits_NV.shape:
        raise ValueError(
            f"teacher logits have shape {tuple(teacher_logits_NV.shape)} but student logits "
            f"{tuple(student_logits_NV.shape)}"
        )
    ids_NK, repeated_NK = union_support(teacher_logits_NV, student_logits_NV, top_k)
    sides = []
    for logits_NV, tau in (
        (teacher_logits_NV, of_teacher(teacher_temperature, temperature)),
        (student_logits_NV, temperature),
    ):
        support_NK, tail_N = split_support(logits_NV, ids_NK, tau)
        sides.append(join_tail(support_NK.masked_fill(repeated_NK, -torch.inf), tail_N))
    dtype = torch.promote_types(sides[0].dtype, sides[1].dtype)
    return smoothed_pair(sides[0].to(dtype), sides[1].to(dtype), tail_epsilon)
