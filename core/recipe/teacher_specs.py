"""The smallest descriptions of the steps that judge a teacher before it teaches."""

from pydantic import JsonValue

from core.recipe.plugin_specs import Spec
from core.recipe.specs import EvaluationSpec


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
