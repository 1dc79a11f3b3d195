"""The smallest descriptions of the steps that judge a teacher before it teaches."""

from pydantic import JsonValue

from core.recipe.plugin_specs import Spec
from core.recipe.schema.rollout import OwnTemplate
from core.recipe.specs import EnvironmentSpec, EvaluationSpec, LimitsSpec


class QualificationSpec(EvaluationSpec):
    """Let a teacher solve a slice of a split."""

    hinted: bool | None = None
    """It reads the task's hint, as it does when it teaches; null where it does not."""


class EvidenceSpec(Spec):
    """Take over the rates in the manifest of a teacher's adapter."""

    adapter: str
    """Digest of the adapter that was measured."""
    evidence: dict[str, JsonValue]
    """What its manifest says, whole."""


class ComparisonSpec(Spec):
    """Compare teacher and student on the student's own episodes."""

    environment: EnvironmentSpec | None
    """World that gives the teacher its hint; null where the teacher reads what the student read."""
    top_k: int
    """Size of the supports that are compared."""
    temperature: float | None
    """That of the sampling; null where it was greedy or cut."""
    template: OwnTemplate | None = None
    """Frames of a hint; null is ChatML, or that there is no hint."""


class ContinuationSpec(Spec):
    """Let the teacher go on from where the student was before it failed."""

    environment: EnvironmentSpec
    """Which world."""
    limits: LimitsSpec
    """When an episode ends, the student's turns included."""
    hinted: bool | None = None
    """The teacher reads the task's hint; null where it does not."""
    template: OwnTemplate | None = None
    """Frames of the messages; null is ChatML."""
