"""Every objective, with the laws that it declares: what tests hold it to is part of its definition.

To add one: write a pure function, add an entry with its laws here, and
``tests/core/losses/test_laws.py`` proves it on every kind of target that it reads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from core.losses.buckets import bucket_entropy, paired_categories
from core.losses.divergence import (
    check_teacher_weight,
    entropy,
    gain,
    jensen_shannon_from_log_probs,
    kl_from_log_probs,
    paired_log_probs,
)
from core.losses.laws import Laws
from core.losses.mixing import (
    adaptive_kl,
    entropy_aware_kl,
    rescaled_jensen_shannon,
    skew_forward_kl,
    skew_reverse_kl,
)
from core.losses.options import ObjectiveOptions
from core.losses.sampled import clipped_surrogate, sampled_log_probs
from core.losses.targets import BucketTargets, LogitTargets, SampledTargets
from core.losses.truncated import truncated_forward_kl
from core.losses.union import paired_union_categories

Evaluate = Callable[[Any, Tensor, ObjectiveOptions], Tensor]
OnLogProbs = Callable[[Tensor, Tensor, ObjectiveOptions], Tensor]


@dataclass(frozen=True)
class Objective:
    """One loss per position as a pure function of targets and student logits."""

    name: str
    evaluate: Evaluate
    reads: frozenset[type]
    """Kinds of targets."""
    laws: Laws


REFUSED = {
    "k1": "its gradient does not contain the teacher; use verl_pg_k1, where it is an advantage",
}
"""Names that other systems accept and that cannot work."""


def objective_for(name: str, reads: type) -> Objective:
    """Return the objective of this name, if it reads targets of this kind.

    Args:
        name: As in a recipe's ``loss.divergence`` or ``loss.mode``.
        reads: Type of the targets.

    Returns:
        The registered objective.

    Raises:
        ValueError: No such objective, or not for such targets.
    """
    if name in REFUSED:
        raise ValueError(f"objective {name!r} is refused: {REFUSED[name]}")
    found = OBJECTIVES.get(name)
    if found is None or reads not in found.reads:
        known = sorted(entry.name for entry in OBJECTIVES.values() if reads in entry.reads)
        raise ValueError(
            f"no objective {name!r} for {reads.__name__}; known: {', '.join(known) or 'none'}"
        )
    return found


def paired(
    targets: LogitTargets | BucketTargets, logits_NV: Tensor, options: ObjectiveOptions
) -> tuple[Tensor, Tensor]:
    """Return teacher's and student's finite log-probabilities over the same categories.

    Args:
        targets: Full logits, reduced to a union support where options say so; or buckets.
        logits_NV: Raw logits of the student.
        options: Temperature, tail epsilon, union size.

    Returns:
        ``(log P, log Q)``, each ``[N, categories]``.

    Raises:
        ValueError: The two sides do not match.
    """
    o = options
    if isinstance(targets, BucketTargets):
        return paired_categories(targets, logits_NV, o.temperature, o.tail_epsilon)
    teacher_NV = targets.teacher_logits_NV
    if o.union_top_k is None:
        return paired_log_probs(teacher_NV, logits_NV, o.temperature)
    return paired_union_categories(
        teacher_NV, logits_NV, o.union_top_k, o.temperature, o.tail_epsilon
    )


def _distribution(name: str, on_log_probs: OnLogProbs, laws: Laws | None = None) -> Objective:
    """Return an objective on log-probabilities, whatever the categories are."""

    def evaluate(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
        teacher_NC, student_NC = paired(targets, logits_NV, o)
        scale = gain(o.temperature, o.scale_by_temperature_squared)
        return on_log_probs(teacher_NC, student_NC, o) * scale

    return Objective(name, evaluate, frozenset({LogitTargets, BucketTargets}), laws or Laws())


def _jsd(teacher_NC: Tensor, student_NC: Tensor, o: ObjectiveOptions) -> Tensor:
    check_teacher_weight(o.teacher_weight)
    return jensen_shannon_from_log_probs(teacher_NC, student_NC, o.teacher_weight)


def _teacher_entropy(targets: LogitTargets | BucketTargets, o: ObjectiveOptions) -> Tensor:
    if isinstance(targets, LogitTargets):
        return entropy(targets.teacher_logits_NV, temperature=o.temperature)
    return bucket_entropy(targets) if targets.entropy_N is None else targets.entropy_N


def _entropy_aware(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    teacher_NC, student_NC = paired(targets, logits_NV, o)
    value_N = entropy_aware_kl(
        teacher_NC, student_NC, _teacher_entropy(targets, o), o.entropy_threshold
    )
    return value_N * gain(o.temperature, o.scale_by_temperature_squared)


def _verl_forward_kl_topk(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    loss_N, _ = truncated_forward_kl(
        targets,
        logits_NV,
        log_prob_min_clamp=o.log_prob_min_clamp,
        loss_max_clamp=o.loss_max_clamp,
    )
    return loss_N


def _verl_pg_k1(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    loss_N, _ = clipped_surrogate(
        sampled_log_probs(logits_NV, targets.sampled_ids_N),
        targets,
        clip_low=o.clip_ratio_low,
        clip_high=o.clip_ratio_high,
        dual_clip=o.clip_ratio_c,
        loss_max_clamp=o.loss_max_clamp,
    )
    return loss_N


def _mixture_entropy(options: ObjectiveOptions) -> float:
    w = options.teacher_weight
    return -w * math.log(w) - (1.0 - w) * math.log(1.0 - w)


def _rescaled_bound(options: ObjectiveOptions) -> float:
    w = options.teacher_weight
    return _mixture_entropy(options) / (w * (1.0 - w))


_SKEWED = Laws(upper_bound=lambda options: -math.log(options.skew))

OBJECTIVES: dict[str, Objective] = {
    entry.name: entry
    for entry in (
        _distribution("forward_kl", lambda p, q, o: kl_from_log_probs(p, q)),
        _distribution("reverse_kl", lambda p, q, o: kl_from_log_probs(q, p)),
        _distribution("jsd", _jsd, Laws(upper_bound=_mixture_entropy)),
        _distribution(
            "rescaled_jsd",
            lambda p, q, o: rescaled_jensen_shannon(p, q, o.teacher_weight),
            Laws(upper_bound=_rescaled_bound),
        ),
        _distribution("skew_forward_kl", lambda p, q, o: skew_forward_kl(p, q, o.skew), _SKEWED),
        _distribution("skew_reverse_kl", lambda p, q, o: skew_reverse_kl(p, q, o.skew), _SKEWED),
        _distribution(
            "adaptive_kl",
            lambda p, q, o: adaptive_kl(p, q, o.head_mass),
            Laws(gradient_is_of_the_value=False),
        ),
        Objective(
            "entropy_aware_kl", _entropy_aware, frozenset({LogitTargets, BucketTargets}), Laws()
        ),
        Objective(
            "forward_kl_topk",
            _verl_forward_kl_topk,
            frozenset({BucketTargets}),
            Laws(flat_at_identity=False),
        ),
        Objective(
            "verl_pg_k1",
            _verl_pg_k1,
            frozenset({SampledTargets}),
            Laws(non_negative=False),
        ),
    )
}
