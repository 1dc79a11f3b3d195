"""Every objective, with the laws that it declares: what tests hold it to is part of its definition.

To add one: write a pure function, add an entry with its laws here, and
``tests/core/losses/test_laws.py`` proves it on every kind of target that it reads.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from core.losses.buckets import bucket_entropy, paired_categories
from core.losses.divergence import (
    check_teacher_weight,
    entropy,
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
from core.losses.objective import Measured, Objective
from core.losses.options import ObjectiveOptions
from core.losses.sampled import SurrogateDiagnostics, clipped_surrogate, sampled_log_probs
from core.losses.shared import paired_shared_categories
from core.losses.targets import BucketTargets, LogitTargets, SampledTargets, SharedTargets
from core.losses.temperature import gain, of_teacher
from core.losses.truncated import TruncationDiagnostics, truncated_forward_kl
from core.losses.union import paired_union_categories

OnLogProbs = Callable[[Tensor, Tensor, ObjectiveOptions], Tensor]

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
    targets: LogitTargets | SharedTargets | BucketTargets,
    logits_NV: Tensor,
    options: ObjectiveOptions,
) -> tuple[Tensor, Tensor]:
    """Return teacher's and student's finite log-probabilities over the same categories.

    Args:
        targets: Full logits, reduced to a union support where options say so; those of another
            vocabulary, reduced to its shared tokens; or buckets.
        logits_NV: Raw logits of the student.
        options: Temperature, tail epsilon, union size.

    Returns:
        ``(log P, log Q)``, each ``[N, categories]``.

    Raises:
        ValueError: The two sides do not match.
    """
    o = options
    if isinstance(targets, BucketTargets):
        return paired_categories(
            targets, logits_NV, o.temperature, o.tail_epsilon, o.teacher_temperature
        )
    if isinstance(targets, SharedTargets):
        return paired_shared_categories(
            targets, logits_NV, o.temperature, o.tail_epsilon, o.teacher_temperature
        )
    teacher_NV = targets.teacher_logits_NV
    if o.union_top_k is None:
        return paired_log_probs(teacher_NV, logits_NV, o.temperature, o.teacher_temperature)
    return paired_union_categories(
        teacher_NV, logits_NV, o.union_top_k, o.temperature, o.tail_epsilon, o.teacher_temperature
    )


def teacher_entropy(
    targets: LogitTargets | SharedTargets | BucketTargets,
    temperature: float,
    teacher_temperature: float | None,
) -> Tensor:
    """Return the entropy of the teacher at its temperature.

    Args:
        targets: Full logits, over whichever vocabulary the teacher has; or buckets, which hold the
            entropy of the whole distribution or are themselves all that is known of it.
        temperature: τ of the loss.
        teacher_temperature: τ of the teacher, or None for the loss's.

    Returns:
        ``[N]`` nats.

    Raises:
        ValueError: τ ≤ 0.
    """
    tau = of_teacher(teacher_temperature, temperature)
    if isinstance(targets, LogitTargets):
        return entropy(targets.teacher_logits_NV, temperature=tau)
    if isinstance(targets, SharedTargets):
        return entropy(targets.teacher_logits_NU, temperature=tau)
    return bucket_entropy(targets) if targets.entropy_N is None else targets.entropy_N


DISTRIBUTIONS = frozenset({LogitTargets, SharedTargets, BucketTargets})
"""Targets from which both sides' distributions over common categories follow."""
MASSES = ("student_mass", "teacher_mass")


def _masses(
    targets: Any, teacher_NC: Tensor, student_NC: Tensor, o: ObjectiveOptions
) -> Mapping[str, Tensor]:
    """Return the mass of each side on the support; without a support there is nothing to say."""
    if isinstance(targets, LogitTargets) and o.union_top_k is None:
        return {}
    tails = student_NC[:, -1].detach(), teacher_NC[:, -1].detach()
    return {name: -tail.expm1() for name, tail in zip(MASSES, tails, strict=True)}


def _distribution(name: str, on_log_probs: OnLogProbs, laws: Laws | None = None) -> Objective:
    """Return an objective on log-probabilities, whatever the categories are."""

    def measure(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Measured:
        teacher_NC, student_NC = paired(targets, logits_NV, o)
        scale = gain(o.temperature, o.scale_by_temperature_squared)
        value_N = on_log_probs(teacher_NC, student_NC, o) * scale
        return value_N, _masses(targets, teacher_NC, student_NC, o)

    return Objective(name, measure, DISTRIBUTIONS, laws or Laws(), support_diagnostics=MASSES)


def _jsd(teacher_NC: Tensor, student_NC: Tensor, o: ObjectiveOptions) -> Tensor:
    check_teacher_weight(o.teacher_weight)
    return jensen_shannon_from_log_probs(teacher_NC, student_NC, o.teacher_weight)


def _entropy_aware(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Measured:
    teacher_NC, student_NC = paired(targets, logits_NV, o)
    entropy_N = teacher_entropy(targets, o.temperature, o.teacher_temperature)
    value_N = entropy_aware_kl(teacher_NC, student_NC, entropy_N, o.entropy_threshold)
    undecided_N = entropy_N.detach() > o.entropy_threshold
    scale = gain(o.temperature, o.scale_by_temperature_squared)
    masses = _masses(targets, teacher_NC, student_NC, o)
    return value_N * scale, {"undecided": undecided_N, **masses}


def _verl_forward_kl_topk(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Measured:
    loss_N, found = truncated_forward_kl(
        targets,
        logits_NV,
        log_prob_min_clamp=o.log_prob_min_clamp,
        loss_max_clamp=o.loss_max_clamp,
    )
    return loss_N, _without_axis(found)


def _verl_pg_k1(targets: Any, logits_NV: Tensor, o: ObjectiveOptions) -> Measured:
    loss_N, found = clipped_surrogate(
        sampled_log_probs(logits_NV, targets.sampled_ids_N),
        targets,
        clip_low=o.clip_ratio_low,
        clip_high=o.clip_ratio_high,
        dual_clip=o.clip_ratio_c,
        loss_max_clamp=o.loss_max_clamp,
    )
    return loss_N, _without_axis(found)


def _names(diagnostics: type) -> tuple[str, ...]:
    return tuple(field.name.removesuffix("_N") for field in fields(diagnostics))


def _without_axis(
    diagnostics: TruncationDiagnostics | SurrogateDiagnostics,
) -> Mapping[str, Tensor]:
    """Return the columns under their names in a metrics row."""
    return {
        field.name.removesuffix("_N"): getattr(diagnostics, field.name)
        for field in fields(diagnostics)
    }


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
            "entropy_aware_kl",
            _entropy_aware,
            DISTRIBUTIONS,
            Laws(),
            ("undecided",),
            MASSES,
        ),
        Objective(
            "forward_kl_topk",
            _verl_forward_kl_topk,
            frozenset({BucketTargets}),
            Laws(flat_at_identity=False),
            _names(TruncationDiagnostics),
        ),
        Objective(
            "verl_pg_k1",
            _verl_pg_k1,
            frozenset({SampledTargets}),
            Laws(non_negative=False),
            _names(SurrogateDiagnostics),
        ),
    )
}
