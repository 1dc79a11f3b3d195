"""From the artifacts of a run to the data of its report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.artifacts.record import ArtifactRef, Record
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
    read_object,
    read_rows,
    shown_episodes,
)

AFTER = {
    "sft": "after SFT",
    "offline_kd": "after offline KD",
    "opd": "after OPD",
    "online_distillation_with_replay": "after online distillation with replay",
}
"""What the last evaluation of each kind of run is called."""


class Parts:
    """Parents of a report by role: ``evaluation_0003``, ``rollouts_0002``, ``cold_start``."""

    def __init__(self, store: Store, refs: Mapping[str, ArtifactRef]) -> None:
        self._store = store
        self.refs = dict(refs)

    def numbered(self, role: str) -> list[tuple[int, str]]:
        """Return number and full role of every parent of a kind, ascending."""
        prefix = f"{role}_"
        numbers = [name.removeprefix(prefix) for name in self.refs if name.startswith(prefix)]
        return sorted((int(n), prefix + n) for n in numbers if n.isdigit())

    def path(self, role: str) -> Path:
        """Return a parent's directory."""
        return self._store.path(self.refs[role])

    def record(self, role: str) -> Record:
        """Return a parent's record."""
        return self._store.record(self.refs[role])


def assemble(store: Store, refs: Mapping[str, ArtifactRef], spec: ReportSpec) -> ReportData:
    """Read everything that a run's page shows.

    Raises:
        ReportError: A file is missing or unreadable.
        StoreError: A parent has no record.
    """
    parts = Parts(store, refs)
    newest = f"student_{len(parts.numbered('rollouts')) - 1:04d}"
    cycles = [_cycle(parts, number) for number, _ in parts.numbered("rollouts")]
    evaluations = _evaluations(parts, len(parts.numbered("student")), spec.mode)
    return ReportData(
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
        budget=_optional(parts, newest if cycles else "cold_start", "budget.json"),
        artifacts=[_artifact(parts, role) for role in parts.refs],
        provenance=_provenance(parts),
    )


def _evaluations(parts: Parts, last: int, mode: str) -> list[EvaluationPoint]:
    points = []
    for number, role in parts.numbered("evaluation"):
        stats = read_object(parts.path(role) / "eval.json")["stats"]
        done = number - 1
        points.append(EvaluationPoint(stage=stage_name(done, last, mode), cycle=done, stats=stats))
    return points


def stage_name(done: int, last: int, mode: str) -> str:
    """Return what an evaluation after ``done`` of ``last`` cycles is called.

    Args:
        done: Cycles done; −1 is before any training, 0 after the supervised part.
        last: Cycles of the run.
        mode: Kind of run, as in ``core.recipe.objective.RunKind``.
    """
    alone = mode == "sft" and last <= 0  # without a cold start of its own
    if done < 0:
        return "before training" if alone else "before cold start"
    if done == 0:
        return "after SFT" if alone else "after cold start"
    return AFTER[mode] if done == last else f"after cycle {done}"


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
    numbers = parts.numbered("rollouts")
    if not numbers:
        return []
    last, role = numbers[-1]
    return shown_episodes(
        parts.path(role) / "trajectories.jsonl",
        parts.path(f"student_{last:04d}") / "token_analysis.jsonl",
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


def _provenance(parts: Parts) -> dict[str, Any]:
    role = next(reversed(parts.refs), None)
    if role is None:
        return {}
    origin = parts.record(role).provenance
    commit = f"{origin.commit}{' (dirty)' if origin.dirty else ''}" if origin.commit else "unknown"
    hardware = ", ".join(f"{name} {value}" for name, value in sorted(origin.hardware.items()))
    packages = ", ".join(f"{name} {value}" for name, value in sorted(origin.packages.items()))
    return {"commit": commit, "python": origin.python, "packages": packages, "hardware": hardware}
