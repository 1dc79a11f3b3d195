"""The JSON lines of a run directory, made from the artifacts of its steps.

Seconds are in no artifact's content; they come from its record and stand in these rows alone.
"""

import json
from collections.abc import Iterator
from typing import Any

from core.artifacts.codec import read_json, read_jsonl
from core.recipe.objective import run_kind
from core.recipe.recipe import Recipe
from core.runs.layout import EVAL_TRAJECTORIES, METRICS, TOKEN_ANALYSIS, TRAJECTORIES
from core.runs.parts import Parts
from core.runs.stages import stage_name

Json = dict[str, Any]


def metrics_rows(parts: Parts, recipe: Recipe) -> list[Json]:
    """Return one row per optimizer step, cycle and evaluation, in the order of the run.

    Each says in ``artifact`` which artifact of the manifest it comes from.
    """
    cycles = [number for number, _ in parts.numbered("student")]
    evaluations = dict(parts.numbered("evaluation"))
    rows = [row for role in ("qualification",) for row in _document(parts, role, "qualification")]
    for done in range(-1, max([*cycles, *(n - 1 for n in evaluations)], default=0) + 2):
        if done == 0:
            rows += [*_steps(parts, "cold_start"), *_dataset(parts)]
        if done - 1 in cycles:
            rows += [*_steps(parts, f"student_{done - 1:04d}"), _cycle(parts, recipe, done - 1)]
        if done + 1 in evaluations:
            rows.append(_evaluation(parts, evaluations[done + 1], done, len(cycles), recipe))
    return rows


def evaluations_document(parts: Parts, recipe: Recipe) -> Json:
    """Return ``eval.json``: every evaluation, and the success of each stage."""
    last = len(parts.numbered("student"))
    rows = [
        {
            "stage": stage_name(number - 1, last, run_kind(recipe)),
            "cycle": number - 1,
            **read_json(parts.path(role) / "eval.json"),
        }
        for number, role in parts.numbered("evaluation")
    ]
    return {
        "mode": recipe.run.mode,
        "seed": recipe.run.seed,
        "success": {row["stage"]: row["stats"]["success_rate"] for row in rows},
        "evaluations": rows,
    }


def joined(parts: Parts) -> dict[str, list[bytes]]:
    """Return the content of the three JSONL files that are the artifacts' own lines, in order."""
    episodes = [role for role in ("dataset",) if role in parts.refs]
    episodes += [role for _, role in parts.numbered("rollouts")]
    rollouts = [parts.path(role) / TRAJECTORIES for role in episodes]
    played = [parts.path(role) / EVAL_TRAJECTORIES for _, role in parts.numbered("evaluation")]
    analysed = [parts.path(role) / TOKEN_ANALYSIS for _, role in parts.numbered("student")[-1:]]
    return {
        name: [path.read_bytes() for path in paths if path.exists()]
        for name, paths in (
            (TRAJECTORIES, rollouts),
            (EVAL_TRAJECTORIES, played),
            (TOKEN_ANALYSIS, analysed),
        )
    }


def dump_rows(rows: list[Json]) -> list[bytes]:
    """Return rows as lines of JSON."""
    return [f"{json.dumps(row, separators=(',', ':'), allow_nan=False)}\n".encode() for row in rows]


def _steps(parts: Parts, role: str) -> Iterator[Json]:
    if parts.has(role, METRICS):
        for row in read_jsonl(parts.path(role) / METRICS):
            yield row | {"artifact": role}


def _document(parts: Parts, role: str, name: str) -> Iterator[Json]:
    if parts.has(role, f"{name}.json"):
        found = read_json(parts.path(role) / f"{name}.json")
        yield {"phase": role, "artifact": role, name: found, "seconds": _seconds(parts, role)}


def _dataset(parts: Parts) -> Iterator[Json]:
    """Yield the row of the frozen episodes that every cycle of offline distillation replays."""
    for row in _document(parts, "dataset", "manifest"):
        place = parts.path("dataset")
        named = {"rollouts": "stats.json", "selection": "selection.json"}
        found = {name: read_json(place / file) for name, file in named.items()}
        yield {"phase": "dataset", "artifact": "dataset", "source": row["manifest"], **found} | {
            "seconds": row["seconds"]
        }


def _cycle(parts: Parts, recipe: Recipe, cycle: int) -> Json:
    student, rollouts, targets = (
        f"{kind}_{cycle:04d}" for kind in ("student", "rollouts", "targets")
    )
    roles = {"sample": rollouts, "score": targets, "update": student}
    row: Json = {
        "phase": f"{recipe.run.mode}_cycle",
        "cycle": cycle,
        "artifact": student,
        "seconds": {n: _seconds(parts, role) for n, role in roles.items() if role in parts.refs},
    }
    documents = {
        "rollouts": (rollouts, "stats.json"),
        "selection": (targets, "selection.json"),
        "canaries": (student, "canaries.json"),
        "watch": (student, "watch.json"),
        "budget": (student, "budget.json"),
    }
    for name, (role, file) in documents.items():
        if parts.has(role, file):
            row[name] = read_json(parts.path(role) / file)
    return row


def _seconds(parts: Parts, role: str) -> float:
    return parts.record(role).provenance.wall_time_s


def _evaluation(parts: Parts, role: str, done: int, last: int, recipe: Recipe) -> Json:
    found = read_json(parts.path(role) / "eval.json")
    seconds, stats = _seconds(parts, role), found["stats"]
    tokens = stats["generated_tokens"]
    return {
        "phase": "eval",
        "artifact": role,
        "stage": stage_name(done, last, run_kind(recipe)),
        "cycle": done,
        "split": found["split"],
        "parameter_version": found["parameter_version"],
        "success_rate": stats["success_rate"],
        "solved": stats["solved"],
        "rollouts": stats["rollouts"],
        "generated_tokens": tokens,
        "seconds": seconds,
        "rollout_tokens_per_second": tokens / seconds if seconds else None,
    }
