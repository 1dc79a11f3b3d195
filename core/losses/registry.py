"""Every objective, with the laws that it declares: what tests hold it to is part of its definition.

An objective is looked up by name and by the kind of targets it reads. To add one, write a pure
function, add an entry here with its laws, and `tests/core/losses/test_laws.py` proves it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from core.losses import buckets, divergence
from core.losses.targets import BucketTargets, LogitTargets


@dataclass(frozen=True)
class ObjectiveOptions:
    """Numbers that objectives read; each reads its own and ignores the others."""

    temperature: float = 1.0
    """Loss temperature τ: divides teacher's and student's logits. Not the sampling temperature."""
    scale_by_temperature_squared: bool = True
    """Multiply a divergence by τ²."""
    teacher_weight: float = 0.5
    """w of the Jensen–Shannon mixture M = w·teacher + (1−w)·student."""
    tail_epsilon: float = buckets.TAIL_EPSILON
    """Smallest probability of a tail bucket."""


@dataclass(frozen=True)
class Laws:
    """What holds for an objective, beyond finiteness, parity and split invariance (always tested).

    A value of None means that the law does not apply.
    """

    zero_at_identity: bool = True
    """Value and gradient vanish where the student equals the teacher."""
    non_negative: bool = True
    upper_bound: Callable[[ObjectiveOptions], float] | None = None
    """Largest possible value in nats, before the τ² factor."""


@dataclass(frozen=True)
class Objective:
    """One loss per position as a pure function of targets and student logits."""

    name: str
    reads: type
    """Kind of targets."""
    evaluate: Callable[[Any, Tensor, ObjectiveOptions], Tensor]
    laws: Laws = Laws()


def objective_for(name: str, reads: type) -> Objective:
    """Return the objective of this name for targets of this kind.

    Args:
        name: Name as in a recipe's ``loss.divergence``.
        reads: Type of the targets it will read.

    Returns:
        The registered objective.

    Raises:
        ValueError: No such objective, or not for such targets.
    """
    found = OBJECTIVES.get((name, reads))
    if found is None:
        known = sorted(entry for entry, kind in OBJECTIVES if kind is reads)
        raise ValueError(
            f"no objective {name!r} for {reads.__name__}; known: {', '.join(known) or 'none'}"
        )
    return found


def _scaling(options: ObjectiveOptions) -> dict[str, Any]:
    return {
        "temperature": options.temperature,
        "scale_by_temperature_squared": options.scale_by_temperature_squared,
    }


def _bucketing(options: ObjectiveOptions) -> dict[str, Any]:
    return {**_scaling(options), "tail_epsilon": options.tail_epsilon}


def _exact_forward_kl(targets: LogitTargets, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    return divergence.forward_kl(targets.teacher_logits_NV, logits_NV, **_scaling(o))


def _exact_reverse_kl(targets: LogitTargets, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    return divergence.reverse_kl(targets.teacher_logits_NV, logits_NV, **_scaling(o))


def _exact_jsd(targets: LogitTargets, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    return divergence.jensen_shannon(
        targets.teacher_logits_NV, logits_NV, teacher_weight=o.teacher_weight, **_scaling(o)
    )


def _bucketed_forward_kl(targets: BucketTargets, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    return buckets.forward_kl(targets, logits_NV, **_bucketing(o))


def _bucketed_reverse_kl(targets: BucketTargets, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    return buckets.reverse_kl(targets, logits_NV, **_bucketing(o))


def _bucketed_jsd(targets: BucketTargets, logits_NV: Tensor, o: ObjectiveOptions) -> Tensor:
    return buckets.jensen_shannon(
        targets, logits_NV, teacher_weight=o.teacher_weight, **_bucketing(o)
    )


def _mixture_entropy(options: ObjectiveOptions) -> float:
    w = options.teacher_weight
    return -w * math.log(w) - (1.0 - w) * math.log(1.0 - w)


_MIXTURE_LAWS = Laws(upper_bound=_mixture_entropy)

OBJECTIVES: dict[tuple[str, type], Objective] = {
    (entry.name, entry.reads): entry
    for entry in (
        Objective("forward_kl", LogitTargets, _exact_forward_kl),
        Objective("reverse_kl", LogitTargets, _exact_reverse_kl),
        Objective("jsd", LogitTargets, _exact_jsd, _MIXTURE_LAWS),
        Objective("forward_kl", BucketTargets, _bucketed_forward_kl),
        Objective("reverse_kl", BucketTargets, _bucketed_reverse_kl),
        Objective("jsd", BucketTargets, _bucketed_jsd, _MIXTURE_LAWS),
    )
}
