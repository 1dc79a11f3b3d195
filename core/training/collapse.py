"""A rule that ends a run whose student has collapsed: it solves nothing, or says always the same.

Self-distillation has been seen to collapse after hundreds of good steps, and to lose pass@k first.
What the rule knows is part of the student's artifact, so an interrupted run stops where an
uninterrupted one does. Nothing here needs torch: plans read it too.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from core.artifacts.codec import write_json
from core.artifacts.filesystem import read_file
from core.errors import StoreError
from core.recipe.training_specs import StopSpec
from core.training.stopping import StopReason
from core.trajectory.trajectory import Trajectory

WATCH = "watch.json"


class Watch(BaseModel):
    """What the rule has seen up to a cycle."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    sampled_entropy: float | None = None
    """Of the newest episodes, nats per sampled token."""
    success_rate: float | None = None
    """Of the newest episodes."""
    cycles_below_entropy: int = 0
    """Cycles in a row, up to this one, below the bound of the entropy."""
    cycles_below_success: int = 0
    """Cycles in a row, up to this one, below the bound of success."""
    stopped: StopReason | None = None
    """Why the run ends after this cycle; None where it goes on."""


def watch(before: Watch, trajectories: Sequence[Trajectory], spec: StopSpec) -> Watch:
    """Return what the rule knows after another cycle.

    Args:
        before: What it knew.
        trajectories: Episodes that the student sampled in this cycle.
        spec: The bounds.

    Returns:
        Both counts; the entropy comes first where both bounds end the run at once.
    """
    logprobs = [value for row in trajectories for value in row.logprobs]
    entropy = -sum(logprobs) / len(logprobs) if logprobs else None
    ends = [row.solved for row in trajectories if row.is_whole]  # an episode's branches count once
    success = sum(ends) / len(ends) if ends else None
    of_entropy = _counted(before.cycles_below_entropy, entropy, spec.min_entropy)
    of_success = _counted(before.cycles_below_success, success, spec.min_success)
    reason = None
    if of_success >= spec.after_cycles:
        reason = StopReason.SUCCESS_RATE
    if of_entropy >= spec.after_cycles:
        reason = StopReason.STUDENT_ENTROPY
    return Watch(
        sampled_entropy=entropy,
        success_rate=success,
        cycles_below_entropy=of_entropy,
        cycles_below_success=of_success,
        stopped=reason,
    )


def _counted(before: int, value: float | None, bound: float | None) -> int:
    return before + 1 if bound is not None and value is not None and value < bound else 0


def read_watch(directory: Path) -> Watch:
    """Return what the rule knew when a student was written; of one without a watch, nothing.

    Raises:
        StoreError: The file is damaged.
    """
    path = directory / WATCH
    if not path.exists():
        return Watch()
    try:
        return Watch.model_validate_json(read_file(path))
    except ValidationError as error:
        raise StoreError(
            f"{path} holds no watch: {error.errors()[0]['msg']}",
            "Run again: the artifact will be rebuilt.",
        ) from error


def write_watch(directory: Path, seen: Watch) -> None:
    """Write what the rule knows beside the student's state."""
    write_json(directory / WATCH, seen.model_dump(mode="json"))
