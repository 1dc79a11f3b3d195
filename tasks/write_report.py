"""The report of a run: one offline page and the numbers behind it."""

from typing import Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.report_spec import ReportSpec
from tasks.caching import StepContext, step


@step(kind="report", version="1")
def write_report(context: StepContext, spec: ReportSpec, **parts: ArtifactRef) -> dict[str, Any]:
    """Write ``report.html`` and ``report.json``."""
    from core.report.assembly import assemble
    from core.report.data import headline
    from core.report.page import write

    data = assemble(context.store, parts, spec)
    write(data, context.out / "report.html")
    write_json(context.out / "report.json", data.model_dump(mode="json"))
    return {point.stage: point.stats["success_rate"] for point in headline(data.evaluations)}
