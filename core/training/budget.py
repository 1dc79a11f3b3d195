"""What a run may spend, and what it has spent: part of the student's artifact, like its weights.

Tokens are cut to fit before a step, so two runs with one budget have spent equally much. Seconds
are looked at between steps and can only be overshot, which is said. Nothing here needs torch.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from core.artifacts.codec import write_json
from core.artifacts.filesystem import read_file
from core.errors import StoreError
from core.recipe.training_specs import BudgetAxis, BudgetSpec
from core.training.stopping import StopReason
from core.trajectory.trajectory import Trajectory

BUDGET = "budget.json"


class Spent(BaseModel):
    """State of a budget after a cycle."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    axis: BudgetAxis
    """What is counted: selected positions that were trained on, tokens that the student sampled, or
    wall seconds of sampling, scoring and training."""
    target: int | float
    """The limit."""
    actual: int | float = 0
    """Spent so far."""
    overshoot: int | float = 0
    """What was done beyond the limit: seconds; tokens that were sampled but not used; never a
    selected position."""
    stopped: StopReason | None = None
    """Set once the limit is reached; None where the run goes on or ended before it."""


@dataclass
class Meter:
    """Counts on from what was spent before a step.

    Attributes:
        spec: The budget.
        before: What was spent before; None at the start of a run.
        seconds: Wall seconds of this cycle's other steps.
        used: Spent since, for tokens.
        unused: Tokens that were sampled beyond the limit.
        started: Reading of the clock when this step began.
    """

    spec: BudgetSpec
    before: Spent | None = None
    seconds: float = 0.0
    used: int = 0
    unused: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def actual(self) -> int | float:
        """Spent up to now."""
        already = self.before.actual if self.before is not None else 0
        if self.counts_seconds:
            return already + self.elapsed
        return already + self.used

    @property
    def elapsed(self) -> float:
        """Wall seconds of this cycle up to now."""
        return self.seconds + time.monotonic() - self.started

    @property
    def counts_seconds(self) -> bool:
        """Whether it is a budget of time."""
        return self.spec.axis == "wall_time"

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.actual >= self.spec.limit

    @property
    def left(self) -> int | None:
        """Tokens that are left, or None where seconds are counted."""
        return None if self.counts_seconds else int(self.spec.limit - self.actual)

    def reading(self) -> Spent:
        """Return what an artifact says of it."""
        actual = self.actual
        over = self.unused
        if self.counts_seconds:
            over = max(0.0, actual - self.spec.limit)
        return Spent(
            axis=self.spec.axis,
            target=self.spec.limit,
            actual=actual,
            overshoot=over,
            stopped=StopReason(self.spec.axis) if actual >= self.spec.limit else None,
        )

    def admit(
        self, trajectories: Sequence[Trajectory], positions: Sequence[Sequence[int]]
    ) -> list[int]:
        """Spend tokens on the episodes of a cycle, in their order, up to the limit.

        Args:
            trajectories: The episodes.
            positions: Selected positions that predict the targets, per episode, ascending; empty
                where an episode is not trained on.

        Returns:
            How many of the positions of each episode fit: all, up to the episode in which the
            budget ends.
        """
        if self.counts_seconds:
            return [len(own) for own in positions]
        if self.spec.axis == "selected_training_tokens":
            return [self._spend(len(own)) for own in positions]
        return [self._sampled(*pair) for pair in zip(trajectories, positions, strict=True)]

    def _spend(self, wanted: int) -> int:
        left = self.left
        assert left is not None, "tokens are counted"
        taken = min(wanted, left)
        self.used += taken
        return taken

    def _sampled(self, trajectory: Trajectory, predicting: Sequence[int]) -> int:
        sampled = [place for place, own in enumerate(trajectory.model_mask) if own]
        taken = self._spend(len(sampled))
        self.unused += len(sampled) - taken
        if taken == len(sampled):
            return len(predicting)
        return sum(position + 1 < sampled[taken] for position in predicting)


def read_spent(directory: Path) -> Spent | None:
    """Return what had been spent when a student was written; None for one without a budget.

    Raises:
        StoreError: The file is damaged.
    """
    path = directory / BUDGET
    if not path.exists():
        return None
    try:
        return Spent.model_validate_json(read_file(path))
    except ValidationError as error:
        raise StoreError(
            f"{path} holds no budget: {error.errors()[0]['msg']}",
            "Run again: the artifact will be rebuilt.",
        ) from error


def write_spent(directory: Path, spent: Spent) -> dict[str, Any]:
    """Write what was spent beside the student's state, and return it for the record."""
    document = spent.model_dump(mode="json")
    write_json(directory / BUDGET, document)
    return {"budget": document}
