"""The report of a run: one offline page, its summary in Markdown, and the numbers behind both."""

from typing import Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.report_spec import ReportSpec
from tasks.caching import StepContext, step


@step(kind="report", version="2")
def write_report(context: StepContext, spec: ReportSpec, **parts: ArtifactRef) -> dict[str, Any]:
    """Write ``report.html``, ``summary.md`` and ``report.json``, without secrets and paths."""
    from core.report.assembly import assemble
    from core.report.data import headline
    from core.report.markdown import summary
    from core.report.page import write

    data = assemble(context.store, parts, spec)
    write(data, context.out / "report.html")
    (context.out / "summary.md").write_text(summary(data), encoding="utf-8", newline="\n")
    write_json(context.out / "report.json", data.model_dump(mode="json"))
    return {point.stage: point.stats["success_rate"] for point in headline(data.evaluations)}
