"""From the artifacts of a run to the data of its report."""

from collections.abc import Mapping

from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.recipe.report_spec import ReportSpec
from core.recipe.syntax import write_document
from core.report.data import (
    ArtifactRow,
    CyclePoint,
    EvaluationPoint,
    Json,
    ReportData,
    ShownEpisode,
    provenance_words,
    read_object,
    read_rows,
    shown_episodes,
)
from core.report.run_report import portable_report
from core.runs.parts import Parts
from core.runs.stages import stage_name


def assemble(store: Store, refs: Mapping[str, ArtifactRef], spec: ReportSpec) -> ReportData:
    """Read everything that a run's page shows.

    Raises:
        ReportError: A file is missing or unreadable.
        StoreError: A parent has no record.
    """
    parts = Parts(store, refs)
    states = [role for _, role in parts.numbered("student")]
    newest = states[-1] if states else "cold_start"
    cycles = [_cycle(parts, number) for number, _ in parts.numbered("rollouts")]
    evaluations = _evaluations(parts, len(parts.numbered("student")), spec.mode)
    data = ReportData(
        title=spec.title,
        mode=spec.mode,
        objective=spec.objective,
        seed=spec.seed,
        recipe_yaml=write_document(spec.recipe),
        evaluations=evaluations,
        cold_start_steps=_cold_start_steps(parts),
        cycles=cycles,
        episodes=_episodes(parts, spec),
        qualification=_optional(parts, "qualification", "qualification.json"),
        canaries=_optional(parts, "student_0000", "canaries.json"),
        watch=_optional(parts, newest, "watch.json"),
        budget=_optional(parts, newest, "budget.json"),
        artifacts=[_artifact(parts, role) for role in parts.refs],
        provenance=_provenance(parts),
    )
    return portable_report(data)


def _evaluations(parts: Parts, last: int, mode: str) -> list[EvaluationPoint]:
    points = []
    for number, role in parts.numbered("evaluation"):
        stats = read_object(parts.path(role) / "eval.json")["stats"]
        done = number - 1
        points.append(EvaluationPoint(stage=stage_name(done, last, mode), cycle=done, stats=stats))
    return points


def _cycle(parts: Parts, number: int) -> CyclePoint:
    roles = {"sample": "rollouts", "score": "targets", "update": "student"}
    return CyclePoint(
        cycle=number,
        rollouts=read_object(parts.path(f"rollouts_{number:04d}") / "stats.json"),
        selection=read_object(parts.path(f"targets_{number:04d}") / "selection.json"),
        steps=read_rows(parts.path(f"student_{number:04d}") / "metrics.jsonl"),
        seconds={
            name: parts.record(f"{role}_{number:04d}").provenance.wall_time_s
            for name, role in roles.items()
        },
    )


def _cold_start_steps(parts: Parts) -> list[Json]:
    if "cold_start" not in parts.refs:
        return []
    return read_rows(parts.path("cold_start") / "metrics.jsonl")


def _episodes(parts: Parts, spec: ReportSpec) -> list[ShownEpisode]:
    played = [role for _, role in parts.numbered("rollouts")]
    states = [role for _, role in parts.numbered("student")]
    played = played or [role for role in ("dataset",) if role in parts.refs]
    if not played or not states:
        return []
    return shown_episodes(
        parts.path(played[-1]) / "trajectories.jsonl",
        parts.path(states[-1]) / "token_analysis.jsonl",
        limit=spec.max_trajectories,
        max_tokens=spec.max_tokens_per_trajectory,
    )


def _optional(parts: Parts, role: str, name: str) -> Json:
    if role not in parts.refs:
        return {}
    path = parts.path(role) / name
    return read_object(path) if path.exists() else {}


def _artifact(parts: Parts, role: str) -> ArtifactRow:
    record = parts.record(role)
    numeric = record.numeric_class
    return ArtifactRow(
        step=record.task,
        name=record.name,
        key=record.key,
        digest=record.digest,
        seconds=record.provenance.wall_time_s,
        numeric_class=numeric.model_dump(exclude_none=True) if numeric is not None else {},
        code_digest=record.code.digest if record.code is not None else "",
    )


def _provenance(parts: Parts) -> Json:
    role = next(reversed(parts.refs), None)
    if role is None:
        return {}
    return provenance_words(parts.record(role).provenance.model_dump(mode="json"))
