"""Section ``eval``: how success is measured."""

from typing import Literal

from pydantic import Field

from core.recipe.schema.section import Section


class Evaluation(Section):
    """A slice of one split, solved greedily unless said otherwise."""

    enabled: bool = True
    """Measure success at all."""
    baseline_enabled: bool = True
    """Measure the untrained student as well."""
    tasks: int | None = Field(default=None, ge=1)
    """Tasks to solve; null means the rest of the split."""
    task_offset: int = Field(default=0, ge=0)
    """Index in the split of the first task."""
    split: Literal["train", "eval", "test"] = "eval"
    """Which tasks."""
    temperature: float = Field(default=0.0, ge=0, le=5)
    """Divides the logits before sampling; 0 takes the most likely token."""
    max_turns: int | None = Field(default=None, ge=1)
    """Turns per episode; null means ``rollout.max_turns``."""
    samples_per_task: int = Field(default=1, ge=1, le=1024)
    """Episodes of each task, for pass@k; more than one needs a temperature above 0."""
    seed: int = Field(default=0, ge=0)
    """Seed of the sampling, where the temperature is not 0."""
