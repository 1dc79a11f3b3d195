"""The results of a benchmark as plain data: what tables, statistics and pages are made from.

``rows.jsonl``, ``rows.csv`` and ``rows.parquet`` hold one row per arm, seed, task and sample;
``results.json`` holds the rest. Nothing here needs torch.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.artifacts.codec import read_json, read_jsonl, write_json, write_jsonl, write_parquet
from core.artifacts.filesystem import replace_file
from core.recipe.benchmark_specs import BenchmarkSpec

Json = dict[str, Any]

RESULTS, ROWS, CURVE, TOTALS = "results.json", "rows.jsonl", "curve.json", "totals.json"
LEADING = ("arm", "seed", "method", "task_id", "sample", "success")
"""Columns that come first in a table."""


@dataclass(frozen=True)
class ArmResult:
    """What one arm did on one seed, as its artifact says."""

    rows: Sequence[Json]
    """One per task and sample of the final evaluation."""
    curve: Sequence[Json]
    """One per evaluation: ``stage``, ``cycle``, ``parameter_version``, ``stats``."""
    totals: Json
    """Counts of what it cost, as ``core.evaluation.arm_results.cost`` gives them."""
    digests: Mapping[str, str]
    """Content digest of every artifact of the run, by role."""
    episodes: Path | None = None
    """Trajectories of the final evaluation, where they are kept."""


@dataclass(frozen=True)
class BenchmarkResults:
    """What ``read_results`` finds in an artifact or in a run directory."""

    document: Json
    """Content of ``results.json``."""
    rows: Sequence[Json]
    """One per arm, seed, task and sample."""

    def successes(self) -> dict[str, dict[int, dict[str, float]]]:
        """Return the success of every task: arm -> seed -> task -> mean over samples."""
        found: dict[str, dict[int, dict[str, list[bool]]]] = {}
        for row in self.rows:
            tasks = found.setdefault(row["arm"], {}).setdefault(row["seed"], {})
            tasks.setdefault(row["task_id"], []).append(row["success"])
        return {
            arm: {
                seed: {task: sum(each) / len(each) for task, each in tasks.items()}
                for seed, tasks in seeds.items()
            }
            for arm, seeds in found.items()
        }

    def recoveries(self) -> dict[str, dict[int, dict[str, float | None]]]:
        """Return how often tasks recovered: arm -> seed -> task -> share of its erring samples.

        None where no sample met an error: it has nothing to recover from.
        """
        found: dict[str, dict[int, dict[str, list[bool]]]] = {}
        for row in self.rows:
            tasks = found.setdefault(row["arm"], {}).setdefault(row["seed"], {})
            known = tasks.setdefault(row["task_id"], [])
            if row.get("had_tool_error"):
                known.append(row["recovered_after_tool_error"])
        return {
            arm: {
                seed: {
                    task: sum(each) / len(each) if each else None for task, each in tasks.items()
                }
                for seed, tasks in seeds.items()
            }
            for arm, seeds in found.items()
        }


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def read_arm(
    directory: Path, digests: Mapping[str, str], episodes: Path | None = None
) -> ArmResult:
    """Read what the artifact of an arm says.

    Args:
        directory: Of the artifact.
        digests: Of the artifacts of its run, by role.
        episodes: Trajectories of its final evaluation.

    Raises:
        StoreError: A file is missing or damaged.
    """
    return ArmResult(
        rows=read_jsonl(directory / ROWS),
        curve=read_json(directory / CURVE),
        totals=read_json(directory / TOTALS),
        digests=digests,
        episodes=episodes,
    )


def read_results(directory: Path) -> BenchmarkResults:
    """Read a benchmark's artifact, or the run directory of one that may still be running.

    Raises:
        StoreError: A file is missing or damaged.
    """
    return BenchmarkResults(read_json(directory / RESULTS), read_jsonl(directory / ROWS))


def write_results(
    directory: Path, spec: BenchmarkSpec, done: Mapping[tuple[str, int], ArmResult]
) -> Json:
    """Write everything into a directory and return the content of ``results.json``.

    Args:
        directory: Exists.
        spec: What was asked for.
        done: Results by arm and seed; those that are not there are listed as missing.
    """
    document = _document(spec, done)
    rows = list(_rows(spec, done))
    write_json(directory / RESULTS, document)
    write_jsonl(directory / ROWS, rows)
    replace_file(directory / "rows.csv", [_csv(rows).encode()])
    if rows:
        import pandas as pd

        write_parquet(directory / "rows.parquet", pd.DataFrame(rows, columns=_columns(rows)))
    return document


def _document(spec: BenchmarkSpec, done: Mapping[tuple[str, int], ArmResult]) -> Json:
    cells = [(cell.arm, cell.seed) for cell in spec.cells]
    return {
        "name": spec.name,
        "description": spec.description,
        "digest": spec.digest,
        "arms": [arm.model_dump(mode="json") for arm in spec.arms],
        "seeds": list(spec.seeds),
        "baseline": spec.baseline,
        "budget": {"axis": spec.budget_axis, "limit": spec.budget_limit},
        "eval_split": spec.eval_split,
        "comparisons": [list(pair) for pair in spec.comparisons],
        "alpha": spec.alpha,
        "looks": spec.looks,
        "published": spec.published,
        "missing": [{"arm": arm, "seed": seed} for arm, seed in cells if (arm, seed) not in done],
        "identical": identical_arms(spec, done),
        "results": [_summary(*cell, done[cell]) for cell in cells if cell in done],
    }


def _summary(arm: str, seed: int, result: ArmResult) -> Json:
    solved = sum(row["success"] for row in result.rows)
    return {
        "arm": arm,
        "seed": seed,
        "tasks": len({row["task_id"] for row in result.rows}),
        "episodes": len(result.rows),
        "solved": solved,
        "success_rate": solved / len(result.rows) if result.rows else None,
        **{name: value for name, value in result.totals.items() if name != "episodes"},
        "training_episodes": result.totals["episodes"],
        "curve": list(result.curve),
    }


def identical_arms(
    spec: BenchmarkSpec, done: Mapping[tuple[str, int], ArmResult]
) -> list[list[str]]:
    """Return groups of arms whose every artifact has the same bytes on every seed.

    Arms that are not there on every seed are in no group.
    """
    groups: dict[str, list[str]] = {}
    for arm in spec.arms:
        own = [done.get((arm.name, seed)) for seed in spec.seeds]
        known = [dict(one.digests) for one in own if one is not None]
        if len(known) == len(spec.seeds):
            groups.setdefault(json.dumps(known, sort_keys=True), []).append(arm.name)
    return [names for names in groups.values() if len(names) > 1]


def _rows(spec: BenchmarkSpec, done: Mapping[tuple[str, int], ArmResult]) -> Iterator[Json]:
    methods = {arm.name: arm.method for arm in spec.arms}
    for cell in spec.cells:
        result = done.get((cell.arm, cell.seed))
        for row in result.rows if result is not None else ():
            yield {"arm": cell.arm, "seed": cell.seed, "method": methods[cell.arm], **row}


def _columns(rows: Sequence[Json]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [*LEADING, *(name for name in names if name not in LEADING)]


def _csv(rows: Sequence[Json]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
