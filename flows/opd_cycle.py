"""The flow ``opd-cycle``: one recipe, one seed, one process."""

import logging
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.runtime import flow_run
from pydantic import BaseModel

from core.artifacts.record import ArtifactRef
from core.errors import RecipeError
from core.evaluation.qualification import minima_of, rate_rows
from core.models.adapter_directory import Evidence
from core.recipe.loading import load
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.validation import check
from core.runs.configs import Submission
from core.runs.layout import directory_name
from core.runs.recorder import RunRecorder, recorded
from flows.graphs.gate import gate_of
from flows.graphs.refs import RunRefs
from flows.graphs.run import num_steps, run_graph, stop_reason
from flows.runs.progress import LISTENER
from flows.runs.sources import locate, open_plugins
from flows.runs.summary import summarise_run
from tasks.caching import Step, open_store

logger = logging.getLogger(__name__)

DEFAULT_RECIPE = "recipes/toy.yaml"
PROGRESS_S = 2.0
"""Seconds between updates of the progress artifact: each is a request to the server."""


def run_name() -> str:
    """Name a flow run like its directory; one that must still read its recipe, like that file."""
    given = flow_run.get_parameters()
    if given.get("recipe") is None:  # a deployment sends only what was set
        return given.get("recipe_path", DEFAULT_RECIPE)
    recipe = Recipe.model_validate(given["recipe"])
    return directory_name(recipe, Runtime.model_validate(given.get("runtime") or {}))


def checked(
    recipe: Recipe | None, runtime: Runtime | None, recipe_path: str, overrides: list[str]
) -> tuple[Recipe, Runtime]:
    """Return what a flow was given, or what its file says, once nothing speaks against it.

    Raises:
        RecipeError: The recipe is refused, however it was given.
    """
    if recipe is None:
        loaded = load(Path(recipe_path), overrides)
        recipe, runtime = loaded.recipe, runtime or loaded.runtime
    runtime = runtime or Runtime()
    check(recipe, runtime)
    open_plugins(recipe, runtime)
    return recipe, runtime


@flow(name="opd-cycle", flow_run_name=run_name, validate_parameters=True)
def opd_cycle(
    recipe: Recipe | None = None,
    runtime: Runtime | None = None,
    recipe_path: str = DEFAULT_RECIPE,
    overrides: list[str] | None = None,
) -> dict[str, Any]:
    """Run on-policy distillation as cached steps.

    Args:
        recipe: What to compute; where it is missing, ``recipe_path`` is loaded.
        runtime: Where and how; never part of a result's identity.
        recipe_path: A YAML file, relative to the directory of the deployment.
        overrides: ``key=value`` changes to that file.

    Raises:
        RecipeError: The recipe is refused, however it was given.
        RunOwnedError: Another process is at the same run directory.
        QualificationError: The recipe asks for a gate, and its teacher does not pass.
    """
    recipe, runtime = checked(recipe, runtime, recipe_path, overrides or [])
    given = _submission(recipe, runtime, recipe_path, overrides or [])
    recipe, runtime = locate(recipe, runtime)
    store = open_store(runtime.store)
    run = RunRefs()
    with recorded(store, recipe, runtime, given) as record:
        record.so_far = run.artifacts
        record.start()
        caller = StepCaller(runtime, num_steps(recipe), record)
        gate = gate_of(recipe, runtime, store, lambda evidence: _show_teacher(recipe, evidence))
        run_graph(recipe, caller, lambda student: stop_reason(student, store), gate, run)
        caller.finish()
        view = record.complete(run.artifacts(), run.stopped)
    summary = summarise_run(run, recipe, runtime, caller.computed, caller.calls)
    summary["view"] = str(view)
    _publish(run, runtime, summary)
    return summary


def _submission(recipe: Recipe, runtime: Runtime, path: str, overrides: list[str]) -> Submission:
    """Return what a person gave: a file counts where it still says what is computed."""
    try:
        loaded = load(Path(path), overrides)
    except RecipeError:  # the recipe was put together in code, and the path is a default
        return Submission(recipe, runtime)
    if loaded.recipe != recipe:
        return Submission(recipe, runtime)
    return Submission(recipe, runtime, loaded.source, tuple(overrides), path)


class StepCaller:
    """Runs steps as Prefect tasks and tells how far they are."""

    def __init__(self, runtime: Runtime, total: int, record: RunRecorder | None = None) -> None:
        self.calls = 0
        self.computed = 0
        self._runtime = runtime
        self._total = total
        self._record = record
        self._shown = time.monotonic()
        self._listener = LISTENER.get()
        self._listener.begin(total)
        made = create_progress_artifact(0.0, key="opd-progress", description="steps")
        assert isinstance(made, UUID), "called from a synchronous flow"
        self._artifact = made

    def __call__(
        self, step: Step, spec: BaseModel, *, name: str, **parents: ArtifactRef
    ) -> ArtifactRef:
        """Run one step, or find it in the store; returns its artifact."""
        self._listener.before(step.name, name)
        call = step.prepare(spec, runtime=self._runtime, name=name, **parents)
        ref = step.perform(call)
        self.calls += 1
        self.computed += call.found is None
        self._listener.after(cached=call.found is not None)
        if self._record is not None:
            made = open_store(self._runtime.store).record(ref)
            self._record.note(step.name, made, cached=call.found is not None)
        now = time.monotonic()
        if now - self._shown >= PROGRESS_S:
            update_progress_artifact(self._artifact, 100.0 * self.calls / self._total)
            self._shown = now
        return ref

    def finish(self) -> None:
        """Say that nothing is left to do, however many cycles a run took."""
        update_progress_artifact(self._artifact, 100.0)


def _show_teacher(recipe: Recipe, evidence: Evidence) -> None:
    """Show in the UI what the teacher can do, whether it is let through or not."""
    rows = rate_rows(evidence.rates, minima_of(recipe))
    title = f"Rates of the teacher on {evidence.tasks} tasks of split {evidence.split}"
    create_table_artifact(rows, key="opd-qualification", description=title)


def _publish(run: RunRefs, runtime: Runtime, summary: dict[str, Any]) -> None:
    """Show the results in the UI: a table of the cycles, and where the report is."""
    store = open_store(runtime.store)
    rows = [
        {"step": role, **store.record(ref).metrics}
        for role, ref in run.parts.items()
        if role.startswith(("evaluation", "student"))
    ]
    create_table_artifact(rows, key="opd-steps", description="Evaluations and updates")
    lines = [f"| {stage} | {rate:.1%} |" for stage, rate in summary["success"].items()]
    table = "\n".join(["| held-out success | |", "|---|---|", *lines])
    report = summary["report"] or "switched off"
    create_markdown_artifact(f"{table}\n\nReport: `{report}`", key="opd-report")
