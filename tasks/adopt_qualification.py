"""A qualification that was measured elsewhere: the rates in the manifest of a teacher's adapter."""

from typing import Any

from core.artifacts.codec import write_json
from core.models.adapter_directory import Evidence
from core.recipe.teacher_specs import EvidenceSpec
from tasks.caching import StepContext, step


@step(kind="qualification", version="1")
def adopt_qualification(context: StepContext, spec: EvidenceSpec) -> dict[str, Any]:
    """Write ``qualification.json``; there are no episodes of it here."""
    evidence = Evidence.model_validate(spec.evidence)
    write_json(context.out / "qualification.json", evidence.model_dump(mode="json"))
    return {name: rate.estimate for name, rate in evidence.rates.items()}
