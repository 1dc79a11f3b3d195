"""Categories of two vocabularies: the tokens that both have, plus one bucket for all others.

Matching identical tokens and leaving the rest to something else is what TRL's GOLD does (after
Universal Logit Distillation, Boizard et al. 2024, arXiv 2402.12030): it compares the *sorted*
probabilities of unmatched tokens, which pairs tokens by rank and not by meaning, and neither of its
two parts is normalised. One bucket is the coarsest merge that keeps both sides proper: what is
compared are two distributions over the same categories, so a divergence is 0 exactly where they
agree and, by the log-sum inequality, at most that of any finer common reading.

The bucket is also what the merge cannot see. A teacher whose favourite is one token that the
student spells with two puts that mass into the bucket, and the student is not told that its first
piece was right (X-Token, arXiv 2605.21699, names the failure; Byte-Prefix Marginalization, arXiv
2607.22334, moves such mass to the longest prefix that the student has). Both sides' shared mass is
reported.
"""

import torch
from torch import Tensor

from core.losses.support import join_tail, smoothed_pair, split_columns
from core.losses.targets import SharedTargets
from core.losses.temperature import of_teacher


def paired_shared_categories(
    targets: SharedTargets,
    student_logits_NV: Tensor,
    temperature: float,
    tail_epsilon: float,
    teacher_temperature: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return both sides' log-probabilities over the shared tokens and the rest.

    Each side's softmax runs over its own whole vocabulary. A side without other tokens has an empty
    rest, raised to ``tail_epsilon`` where the other side's is not empty.

    Args:
        targets: The teacher's logits over its own vocabulary, and the pairs of ids.
        student_logits_NV: Raw logits of the student.
        temperature: τ > 0 of the student, and of the teacher by default.
        tail_epsilon: Smallest probability of the rest.
        teacher_temperature: τ > 0 of the teacher, where it differs.

    Returns:
        ``(log P, log Q)``, each ``[N, S + 1]``, finite.

    Raises:
        ValueError: Row counts differ, an id lies outside its vocabulary, τ ≤ 0, ``tail_epsilon``
            outside (0, 1), or −inf on one side only.
    """
    if len(targets) != student_logits_NV.shape[0]:
        raise ValueError(f"{len(targets)} targets but {student_logits_NV.shape[0]} student rows")
    tau = of_teacher(teacher_temperature, temperature)
    sides = [
        join_tail(*split_columns(logits, _within(ids_S, logits, whose), own_tau))
        for whose, logits, ids_S, own_tau in (
            ("teacher", targets.teacher_logits_NU, targets.pairs.teacher_ids_S, tau),
            ("student", student_logits_NV, targets.pairs.student_ids_S, temperature),
        )
    ]
    dtype = torch.promote_types(sides[0].dtype, sides[1].dtype)
    return smoothed_pair(sides[0].to(dtype), sides[1].to(dtype), tail_epsilon)


def _within(ids_S: Tensor, logits: Tensor, whose: str) -> Tensor:
    """Return the ids, all of which are columns."""
    if bool((ids_S >= logits.shape[-1]).any()):
        raise ValueError(
            f"the {whose}'s logits have {logits.shape[-1]} columns but a shared token has id "
            f"{int(ids_S.max())}"
        )
    return ids_S
