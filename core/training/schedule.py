"""Learning rate as a pure function of the step: nothing to save, nothing to restore."""

import math
from typing import Literal

ScheduleKind = Literal["constant", "linear", "cosine"]


def learning_rate(
    step: int, base: float, warmup_steps: int, total_steps: int, kind: ScheduleKind
) -> float:
    """Return the learning rate of optimizer step ``step``, counted from 0.

    ``base * (step + 1) / warmup_steps`` while ``step < warmup_steps``. Then, with p the share of
    the remaining steps that is done, clamped to [0, 1]: ``base``, ``base * (1 - p)`` or
    ``base * (1 + cos(pi p)) / 2``.

    Args:
        step: Committed optimizer steps so far, at least 0.
        base: Peak learning rate.
        warmup_steps: Steps of linear warm-up.
        total_steps: Step at which a decaying schedule reaches 0.
        kind: Shape after the warm-up.

    Raises:
        ValueError: ``kind`` is unknown, or ``step`` is negative.
    """
    if step < 0:
        raise ValueError(f"step must be at least 0, got {step}")
    if step < warmup_steps:
        return base * (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    if kind == "constant":
        return base
    if kind == "linear":
        return base * (1.0 - progress)
    if kind == "cosine":
        return base * 0.5 * (1.0 + math.cos(math.pi * progress))
    raise ValueError(f"unknown schedule {kind!r}: constant, linear or cosine")
