"""What the steps of a run are called with, and what they leave behind."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from core.runs.parts import RunArtifacts
from core.training.stopping import StopReason
from tasks.caching import Step

Ref = Any
"""An ``ArtifactRef`` where steps run; while planning, also a step whose bytes are not known."""


class Call(Protocol):
    """Run one step, or say what running it would do."""

    def __call__(self, step: Step, spec: BaseModel, *, name: str, **parents: Ref) -> Ref:
        """Return the step's artifact."""
        ...


@dataclass
class RunRefs:
    """What a run leaves behind."""

    tasks: Ref = None
    """The train split."""
    held_out: Ref = None
    """The split that is evaluated."""
    traces: Ref = None
    dataset: Ref = None
    """Frozen episodes with their targets; offline distillation alone has them."""
    teacher: Ref = None
    student: Ref = None
    """The newest state."""
    parts: dict[str, Ref] = field(default_factory=dict)
    """Parents of the report, by role: ``evaluation_…``, ``rollouts_…``, ``qualification``, …"""
    report: Ref = None
    stopped: StopReason | None = None
    """Why it ended before its last cycle, or inside a supervised run."""

    def artifacts(self) -> RunArtifacts:
        """Return what a run directory is made from, as far as the run came."""
        names = ("tasks", "held_out", "traces", "dataset", "teacher")
        inputs = {name: getattr(self, name) for name in names}
        return RunArtifacts(
            parts=dict(self.parts),
            student=self.student,
            report=self.report,
            inputs={name: ref for name, ref in inputs.items() if ref is not None},
        )
