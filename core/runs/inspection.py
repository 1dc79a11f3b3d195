"""What a person looks up in a run: which tokens it trained on, and one episode token by token.

Everything is read from the run directory; torch is not needed. Targets are read with safetensors'
own NumPy reader.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError, safe_open

from core.errors import CacheCorruptionError, InputError
from core.runs.layout import EVAL_TRAJECTORIES, TARGETS, TARGETS_INDEX, TRAJECTORIES
from core.runs.reading import RunDirectory
from core.runs.targets import ShardEntry, TargetShard, read_index
from core.trajectory.spans import Span, SpanType
from core.trajectory.trajectory import Trajectory

Json = dict[str, Any]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SpanRow(_Row):
    """All tokens of one author in the episodes of a run."""

    span_type: str
    trained: bool
    """Whether the student wrote them; nobody else's tokens can be trained."""
    spans: int
    tokens: int
    selected: int
    """Positions that the teacher was asked about."""
    logprob_mean: float | None
    """Nats per sampled token, under the distribution it was drawn from."""
    divergence_mean: float | None
    """Nats per analysed token of the last cycle."""


class TokenRow(_Row):
    """One token of an episode."""

    position: int
    token_id: int
    span_type: str
    segment_key: str
    model: bool
    """Whether the student sampled it."""
    critical: bool
    """Whether it is part of a tool call or an answer."""
    weight: float | None
    """Selection weight; None where the teacher was not asked."""
    logprob: float | None
    """Nats, under the distribution it was drawn from."""
    teacher_logprob: float | None
    """Nats; None where the teacher does not say it of this token."""
    teacher_entropy: float | None
    divergence: float | None
    """Nats; of analysed tokens."""
    piece: str | None
    """Text of the token, where it was analysed."""


class EpisodeView(_Row):
    """One episode token by token."""

    trajectory_id: str
    task_id: str
    environment: str
    policy_version: int
    solved: bool
    termination_reason: str
    expected: str | None
    predicted: str | None
    tokens: tuple[TokenRow, ...]
    texts: tuple[tuple[str, str], ...]
    """Span type and text of each span, in order."""


def provenance_table(run: RunDirectory) -> list[SpanRow]:
    """Return how many tokens of the training episodes each kind of span has.

    Raises:
        TrajectoryError: An episode disagrees with itself.
        CacheError: The index of the targets is damaged.
    """
    spans: dict[str, list[Span]] = defaultdict(list)
    logprobs: dict[str, list[float]] = defaultdict(list)
    for one in run.trajectories():
        for span in one.spans:
            spans[span.span_type.value].append(span)
        for kind, value in zip(_model_kinds(one), one.logprobs, strict=False):
            logprobs[kind].append(value)
    selected = _selected_by_type(run.metrics())
    divergences: dict[str, list[float]] = defaultdict(list)
    for row in run.token_rows():
        if row.get("divergence") is not None:
            divergences[row["span_type"]].append(row["divergence"])
    return [
        SpanRow(
            span_type=kind.value,
            trained=spans[kind.value][0].is_model,
            spans=len(spans[kind.value]),
            tokens=sum(span.end - span.start for span in spans[kind.value]),
            selected=selected.get(kind.value, 0),
            logprob_mean=_mean(logprobs[kind.value]),
            divergence_mean=_mean(divergences[kind.value]),
        )
        for kind in SpanType
        if spans[kind.value]
    ]


def episode_ids(run: RunDirectory, limit: int | None = None) -> list[tuple[str, bool]]:
    """Return id and verdict of the episodes of a run, training first.

    Args:
        run: A run directory.
        limit: Most episodes of each file.
    """
    return [
        (one.trajectory_id, one.solved)
        for name in (TRAJECTORIES, EVAL_TRAJECTORIES)
        for one, _ in zip(run.trajectories(name), _counted(limit), strict=False)
    ]


def episode_view(run: RunDirectory, trajectory_id: str) -> EpisodeView:
    """Return one episode token by token.

    Args:
        run: A run directory.
        trajectory_id: Of a training or an evaluation episode.

    Raises:
        InputError: The run has no such episode.
        CacheCorruptionError: The targets of its cycle are damaged.
    """
    one = _find(run, trajectory_id)
    notes = {
        row["target_position"]: row
        for row in run.token_rows()
        if row["trajectory_id"] == trajectory_id
    }
    exported = run.manifest.exported is not None
    return EpisodeView(
        trajectory_id=one.trajectory_id,
        task_id=one.task_id,
        environment=one.environment,
        policy_version=one.policy_version,
        solved=one.solved,
        termination_reason=one.termination_reason.value,
        expected=one.verification.expected,
        predicted=one.verification.predicted,
        tokens=tuple(_tokens(one, notes, _targets(run.path, one, exported=exported))),
        texts=tuple((span.span_type.value, span.text) for span in one.spans),
    )


def _find(run: RunDirectory, trajectory_id: str) -> Trajectory:
    for name in (TRAJECTORIES, EVAL_TRAJECTORIES):
        for one in run.trajectories(name, only={trajectory_id}):
            return one
    raise InputError(
        f"{run.path} has no episode {trajectory_id!r}",
        "`opd inspect RUN --episodes` lists those that it has.",
    )


def _tokens(
    one: Trajectory, notes: Mapping[int, Json], targets: Mapping[int, Json]
) -> Iterable[TokenRow]:
    sampled = iter(one.logprobs)
    for span in one.spans:
        for position in range(span.start, span.end):
            note, target = notes.get(position, {}), targets.get(position, {})
            yield TokenRow(
                position=position,
                token_id=one.token_ids[position],
                span_type=span.span_type.value,
                segment_key=span.segment_key,
                model=span.is_model,
                critical=span.is_critical,
                weight=target.get("weight", note.get("weight")),
                logprob=next(sampled, None) if span.is_model else None,
                teacher_logprob=target.get("logprob", note.get("teacher_sampled_token_log_prob")),
                teacher_entropy=target.get("entropy", note.get("teacher_entropy")),
                divergence=note.get("divergence"),
                piece=note.get("token_piece"),
            )


def _targets(run: Path, one: Trajectory, *, exported: bool) -> dict[int, Json]:
    """Return what the teacher said of an episode by target position, as far as it is stored.

    An export may hold other token ids in place of those that spell a secret.
    """
    if not (run / TARGETS_INDEX).exists():
        return {}
    for shard, entry, start in _entries(run):
        if entry.trajectory_id != one.trajectory_id:
            continue
        if not exported and entry.tokens_digest != _digest(one.token_ids):
            raise CacheCorruptionError(
                f"{shard.file} was scored for other tokens of {one.trajectory_id}",
                "Run the recipe again to remake the directory.",
                shard.file,
            )
        return _read_targets(run / TARGETS / shard.file, shard, entry, start)
    return {}


def _entries(run: Path) -> Iterable[tuple[TargetShard, ShardEntry, int]]:
    """Yield every scored episode with its shard and its first position in it."""
    for shard in read_index(run).shards:
        start = 0
        for entry in shard.entries:
            yield shard, entry, start
            start += entry.positions


def _read_targets(path: Path, shard: TargetShard, entry: ShardEntry, start: int) -> dict[int, Json]:
    own = slice(start, start + entry.positions)
    try:
        if path.stat().st_size != shard.size:
            raise CacheCorruptionError(f"{path} is cut off", "Run the recipe again.", path.name)
        with safe_open(path, framework="numpy") as stored:
            names = set(stored.keys())
            columns = {name: stored.get_slice(name)[own] for name in names & _COLUMNS}
    except (OSError, SafetensorError) as error:
        raise CacheCorruptionError(
            f"{path} is no safetensors file", "Run the recipe again to remake it.", path.name
        ) from error
    logprobs = _sampled_logprobs(columns)
    entropies = columns.get("entropy_N")
    return {
        int(columns["prediction_positions_N"][n]) + 1: {
            "weight": float(columns["weights_N"][n]),
            "logprob": logprobs[n],
            "entropy": None if entropies is None else float(entropies[n]),
        }
        for n in range(entry.positions)
    }


_COLUMNS = {
    "prediction_positions_N",
    "target_ids_N",
    "weights_N",
    "support_ids_NK",
    "support_logprobs_NK",
    "entropy_N",
    "teacher_logprobs_N",
}


def _sampled_logprobs(columns: Mapping[str, Any]) -> list[float | None]:
    """Return the teacher's log-probability of each sampled token; None outside its top k."""
    if "teacher_logprobs_N" in columns:
        return [float(value) for value in columns["teacher_logprobs_N"]]
    if "support_ids_NK" not in columns:
        return [None] * len(columns["weights_N"])
    matches_NK = columns["support_ids_NK"] == columns["target_ids_N"][:, None]
    best_N = np.where(matches_NK, columns["support_logprobs_NK"], -np.inf).max(-1, initial=-np.inf)
    return [float(value) if np.isfinite(value) else None for value in best_N]


def _model_kinds(one: Trajectory) -> Iterable[str]:
    for span in one.spans:
        if span.is_model:
            yield from [span.span_type.value] * (span.end - span.start)


def _selected_by_type(rows: Sequence[Json]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        for kind, count in row.get("selection", {}).get("selected_by_span_type", {}).items():
            found[kind] += count
    return found


def _digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(np.asarray(token_ids, dtype="<i8").tobytes()).hexdigest()


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _counted(limit: int | None) -> Iterable[int]:
    return range(limit) if limit is not None else iter(int, 1)
