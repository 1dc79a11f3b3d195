"""What a finished run amounts to, in one JSON document."""

from typing import Any

from core.artifacts.store import Store
from core.recipe.objective import METHODS, run_kind
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.runs.stages import stage_name
from core.training.budget import read_spent
from flows.graphs.refs import RunRefs
from tasks.caching import open_store

REUSE = ("reused_positions", "computed_positions")
"""Metrics of scoring that say what the teacher cache was good for."""


def summarise_run(
    run: RunRefs, recipe: Recipe, runtime: Runtime, computed: int, calls: int
) -> dict[str, Any]:
    """Return success by stage, the report's place, and how much came from the store."""
    store = open_store(runtime.store)
    success = {}
    last = sum(role.startswith("student_") for role in run.parts)
    for role, ref in run.parts.items():
        if role.startswith("evaluation_"):
            done = int(role.removeprefix("evaluation_")) - 1
            rate = store.record(ref).metrics["success_rate"]
            success[stage_name(done, last, run_kind(recipe))] = rate
    spent = read_spent(store.path(run.student))
    report = store.path(run.report) / "report.html" if run.report is not None else None
    return {
        "mode": recipe.run.mode,
        "method": METHODS[run_kind(recipe)],
        "seed": recipe.run.seed,
        "success": success,
        "stopped": run.stopped,
        "budget": spent.model_dump(mode="json") if spent is not None else None,
        "report": str(report) if report is not None else None,
        "student": run.student.model_dump(),
        "student_path": str(store.path(run.student)),
        "teacher_targets": _reuse(run, store),
        "memory": _memory(run, store),
        "steps": calls,
        "computed": computed,
        "cached": calls - computed,
    }


def _reuse(run: RunRefs, store: Store) -> dict[str, int]:
    """Return how many targets of the run came from the teacher cache when they were scored."""
    found = [
        store.record(ref).metrics for role, ref in run.parts.items() if role.startswith("targets_")
    ]
    return {name: sum(metrics.get(name, 0) for metrics in found) for name in REUSE}


def _memory(run: RunRefs, store: Store) -> dict[str, Any]:
    """Return how models shared the device when the newest state was made, and its peaks."""
    parts = ("rollouts_", "targets_", "student_")
    peaks = {
        role: store.record(ref).metrics.get("peak_memory_bytes")
        for role, ref in run.parts.items()
        if role.startswith(parts)
    }
    counted = [peak for peak in peaks.values() if isinstance(peak, int)]
    newest = store.record(run.student).metrics
    return {
        "strategy": newest.get("memory_strategy"),
        "reason": newest.get("memory_reason"),
        "peak_bytes": max(counted) if counted else "not measured",
    }
