"""Section ``cold_start``: supervised training on oracle traces, on a schedule of its own."""

from pydantic import Field

from core.recipe.schema.section import Section
from core.recipe.schema.train import Schedule


class ColdStart(Section):
    """Supervised cycles whose weights, and nothing else, the first on-policy cycle starts from."""

    cycles: int = Field(ge=1, le=100_000)
    """Supervised cycles."""
    rollouts_per_cycle: int | None = Field(default=None, ge=1, le=8192)
    """Oracle traces per cycle; null means ``train.rollouts_per_cycle``."""
    demonstrations: int | None = Field(None, ge=1)
    """Different oracle traces to learn from, the first in the run's task order; null means one per
    training task. Demonstrations are scarce where a teacher is not: it labels any episode."""
    learning_rate: float = Field(gt=0, le=1)
    """Peak learning rate."""
    lr_schedule: Schedule = "cosine"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps of linear warm-up."""
