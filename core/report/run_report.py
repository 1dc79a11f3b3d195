"""The report of a run from the files of its directory alone: no store, no torch, no server."""

from collections.abc import Sequence
from typing import Any

from core.artifacts.redaction import redact
from core.recipe.recipe import Recipe
from core.recipe.steps import report_spec
from core.recipe.syntax import write_document
from core.report.data import (
    ArtifactRow,
    CyclePoint,
    EvaluationPoint,
    Json,
    ReportData,
    ReportError,
    ShownEpisode,
    provenance_words,
    token_note,
)
from core.runs.reading import RunDirectory


def run_report(run: RunDirectory) -> ReportData:
    """Read everything that a run's page shows.

    Raises:
        ReportError: The recipe switched the report off.
        InputError: A file is missing or damaged.
    """
    recipe = run.recipe()
    spec = report_spec(_with_report(recipe))
    if spec is None:
        raise ReportError("the recipe has no report", "Set report.enabled=true.")
    rows = run.metrics()
    data = ReportData(
        title=spec.title,
        mode=spec.mode,
        objective=spec.objective,
        seed=spec.seed,
        recipe_yaml=write_document(redact(spec.recipe)),
        evaluations=[
            EvaluationPoint(stage=row["stage"], cycle=row["cycle"], stats=row["stats"])
            for row in run.evaluations()
        ],
        cold_start_steps=_steps(rows, "cold_start"),
        cycles=_cycles(rows),
        episodes=_episodes(run, spec.max_trajectories, spec.max_tokens_per_trajectory),
        artifacts=_artifacts(run),
        provenance=provenance_words(run.manifest.provenance),
        qualification=_found(rows[:1], "qualification"),
        canaries=_found(rows, "canaries"),
        watch=_found(rows[::-1], "watch"),
        budget=run.manifest.budget,
    )
    return portable_report(data)


def portable_report(data: ReportData) -> ReportData:
    """Return a report without secrets and absolute paths."""
    return ReportData.model_validate(redact(data.model_dump(mode="json")))


def _with_report(recipe: Recipe) -> Recipe:
    """A report can be asked for although the run made none."""
    return recipe.model_copy(update={"report": recipe.report.model_copy(update={"enabled": True})})


def _steps(rows: Sequence[Json], role: str) -> list[Json]:
    """Return the optimizer steps of one state, as they were written."""
    return [
        {name: value for name, value in row.items() if name != "artifact"}
        for row in rows
        if row["artifact"] == role and "step" in row
    ]


def _cycles(rows: Sequence[Json]) -> list[CyclePoint]:
    return [
        CyclePoint(
            cycle=row["cycle"],
            rollouts=row["rollouts"],
            selection=row["selection"],
            steps=_steps(rows, row["artifact"]),
            seconds=row["seconds"],
        )
        for row in rows
        if row["phase"].endswith("_cycle") and "rollouts" in row
    ]


def _found(rows: Sequence[Json], name: str) -> Json:
    return next((row[name] for row in rows if name in row), {})


def _episodes(run: RunDirectory, limit: int, max_tokens: int) -> list[ShownEpisode]:
    notes: dict[str, list[Any]] = {}
    for row in run.token_rows():
        notes.setdefault(row["trajectory_id"], []).append(token_note(row))
    shown = (
        ShownEpisode(trajectory=one, notes=notes[one.trajectory_id])
        for one in run.trajectories(only=notes)
        if len(one.token_ids) <= max_tokens
    )
    return [one for one, _ in zip(shown, range(limit), strict=False)]


def _artifacts(run: RunDirectory) -> list[ArtifactRow]:
    return [
        ArtifactRow(
            step=entry.task,
            name=entry.ref.name,
            key=entry.ref.key,
            digest=entry.ref.digest,
            seconds=entry.seconds,
            numeric_class=entry.numeric_class,
            code_digest=entry.code_digest,
        )
        for entry in run.manifest.artifacts.values()
    ]
