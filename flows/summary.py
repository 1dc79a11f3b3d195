"""What a finished run amounts to, in one JSON document."""

from typing import Any

from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schedule import num_cycles
from core.report.assembly import stage_name
from flows.graph import RunRefs
from tasks.caching import open_store


def summarise_run(
    run: RunRefs, recipe: Recipe, runtime: Runtime, computed: int, calls: int
) -> dict[str, Any]:
    """Return success by stage, the report's place, and how much came from the store."""
    store = open_store(runtime.store)
    success = {}
    for role, ref in run.parts.items():
        if role.startswith("evaluation_"):
            done = int(role.removeprefix("evaluation_")) - 1
            rate = store.record(ref).metrics["success_rate"]
            success[stage_name(done, num_cycles(recipe), recipe.run.mode)] = rate
    report = store.path(run.report) / "report.html" if run.report is not None else None
    return {
        "mode": recipe.run.mode,
        "seed": recipe.run.seed,
        "success": success,
        "report": str(report) if report is not None else None,
        "student": run.student.model_dump(),
        "student_path": str(store.path(run.student)),
        "steps": calls,
        "computed": computed,
        "cached": calls - computed,
    }
