"""Section ``offline_kd``: the fixed data set of offline distillation."""

from typing import Literal

from pydantic import Field

from core.recipe.schema.section import Section


class OfflineKd(Section):
    """Which episodes the teacher scores once and the student replays."""

    trajectory_source: Literal["oracle", "frozen_student", "persisted"] = "oracle"
    """Oracle traces, episodes of the untrained student, or a data set that exists already."""
    dataset_path: str | None = None
    """Directory of the existing data set, which counts by its content; ``persisted`` only."""
    collection_seed: int = Field(default=1234, ge=0)
    """Seed of the frozen student's sampling."""
    collection_tasks: int | None = Field(default=None, ge=1)
    """Episodes in the data set; null means one per training task."""
    task_schedule_digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 that the order of the tasks must have."""
