"""What a report shows, read from the files of artifacts alone: no torch, no store, no server."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from core.errors import InputError
from core.trajectory.io import read_trajectories
from core.trajectory.trajectory import Trajectory

Json = dict[str, Any]


class ReportError(InputError):
    """A file that the report needs is missing or unreadable."""


class Row(BaseModel):
    """Base of what the report is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ArtifactRow(Row):
    """Where a number came from."""

    step: str
    name: str
    key: str
    digest: str
    seconds: float | None = None
    """Wall seconds of the computation, whenever it happened."""
    numeric_class: Json = Field(default_factory=dict)
    code_digest: str = ""


class EvaluationPoint(Row):
    """Held-out success of one student state."""

    stage: str
    """``before cold start``, ``after cold start``, ``cycle 8``, ``after OPD`` …"""
    cycle: int
    """Cycles done; −1 before the cold start."""
    stats: Json


class CyclePoint(Row):
    """One sample → score → update."""

    cycle: int
    rollouts: Json
    selection: Json = Field(default_factory=dict)
    """Which positions the teacher was asked about."""
    steps: list[Json]
    seconds: dict[str, float] = Field(default_factory=dict)


class TokenNote(Row):
    """What the teacher and the student said about one sampled token."""

    position: int
    piece: str
    divergence_nats: float | None = None
    nll_nats: float | None = None
    teacher_entropy_nats: float | None = None
    teacher_top: str | None = None
    student_top: str | None = None
    weight: float = 0.0


class ShownEpisode(Row):
    """A trajectory with its token notes."""

    trajectory: Trajectory
    notes: list[TokenNote]


class ReportData(Row):
    """Everything on the page."""

    title: str
    mode: str
    objective: str
    seed: int
    recipe_yaml: str
    evaluations: list[EvaluationPoint]
    cold_start_steps: list[Json] = Field(default_factory=list)
    cycles: list[CyclePoint] = Field(default_factory=list)
    episodes: list[ShownEpisode] = Field(default_factory=list)
    qualification: Json = Field(default_factory=dict)
    """What the teacher showed at the gate; empty where the recipe has no gate."""
    canaries: Json = Field(default_factory=dict)
    watch: Json = Field(default_factory=dict)
    """What the rule that ends collapsed runs has seen; empty where no bound was given."""
    budget: Json = Field(default_factory=dict)
    """What was spent of the run's budget; empty where there was none."""
    artifacts: list[ArtifactRow] = Field(default_factory=list)
    provenance: Json = Field(default_factory=dict)


def read_object(path: Path) -> Json:
    """Return one JSON object.

    Raises:
        ReportError: If the file is missing, is no JSON, or is no object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(
            f"{path} cannot be read: {error}", "Run the recipe again; altered steps are rebuilt."
        ) from error
    if not isinstance(value, dict):
        raise ReportError(f"{path} is no JSON object", "Run the recipe again to rebuild it.")
    return value


def read_rows(path: Path) -> list[Json]:
    """Return the rows of a JSONL file; a file that is absent has no rows.

    Raises:
        ReportError: If a row is no JSON object.
    """
    if not path.exists():
        return []
    rows = []
    # Not splitlines(): a text may hold U+0085 or U+2028, which are no row ends.
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    for number, line in enumerate(filter(None, lines), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ReportError(
                f"{path} row {number} is no JSON: {error}", "Run the recipe again to rebuild it."
            ) from error
        rows.append(row)
    return rows


def token_note(row: Json) -> TokenNote:
    """Return the note of one row of ``token_analysis.jsonl``."""
    return TokenNote(
        position=row["target_position"],
        piece=row["token_piece"],
        divergence_nats=row.get("divergence"),
        nll_nats=row.get("nll"),
        teacher_entropy_nats=row.get("teacher_entropy"),
        teacher_top=row.get("teacher_top_token"),
        student_top=row.get("student_top_token"),
        weight=row.get("weight", 0.0),
    )


def shown_episodes(
    trajectories: Path, token_analysis: Path, *, limit: int, max_tokens: int
) -> list[ShownEpisode]:
    """Return the first ``limit`` episodes that have token notes and fit in ``max_tokens``."""
    notes: dict[str, list[TokenNote]] = {}
    for row in read_rows(token_analysis):
        notes.setdefault(row["trajectory_id"], []).append(token_note(row))
    shown = [
        ShownEpisode(trajectory=one, notes=notes[one.trajectory_id])
        for one in read_trajectories(trajectories)
        if one.trajectory_id in notes and len(one.token_ids) <= max_tokens
    ]
    return shown[:limit]


def provenance_words(origin: Json) -> Json:
    """Return commit, Python, packages, hardware and torch's switches as lines to be read."""
    if not origin:
        return {}
    commit = f"{origin['commit']}{' (dirty)' if origin['dirty'] else ''}"

    def listed(values: Json) -> str:
        return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))

    found = {
        "commit": commit if origin["commit"] else "unknown",
        "python": origin["python"],
        "packages": listed(origin["packages"]),
        "hardware": listed(origin["hardware"]),
    }
    switches = listed(origin.get("arithmetic", {}))
    return {**found, "arithmetic": switches} if switches else found


def headline(evaluations: Sequence[EvaluationPoint]) -> list[EvaluationPoint]:
    """Return the points that answer the question: first, after cold start, last."""
    cold = [point for point in evaluations if point.cycle == 0]
    before = [point for point in evaluations if point.cycle < 0]
    after = [point for point in evaluations if point.cycle > 0]
    return [*before[:1], *cold[:1], *after[-1:]]
