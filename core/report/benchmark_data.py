"""What the report of a benchmark shows, from the files of its directory alone."""

from collections import Counter
from pathlib import Path
from typing import Any

from core.artifacts.codec import read_json, read_jsonl
from core.artifacts.redaction import redact
from core.evaluation.benchmark_comparison import compare_results
from core.evaluation.benchmark_episodes import EPISODES
from core.evaluation.benchmark_results import RESULTS, BenchmarkResults, read_results
from core.report.data import Json, ReportError, Row
from core.runs.registry import STATUS


class BenchmarkReport(Row):
    """Everything on the page of a benchmark."""

    document: Json
    """Content of ``results.json``."""
    comparison: Json
    """Rates with intervals, and comparisons with verdicts."""
    failures: dict[str, dict[str, int]]
    """Arm -> how its episodes ended -> count."""
    cells: list[Json]
    """State, seconds and sources of every arm on every seed; empty where none are known."""
    episodes: list[Json]
    """The same tasks by every arm of one seed."""

    @property
    def seeds(self) -> list[int]:
        """Run seeds."""
        return self.document["seeds"]

    @property
    def arms(self) -> list[str]:
        """Labels of the arms, in their order."""
        return [one["name"] for one in self.document["arms"]]

    def result(self, arm: str, seed: int) -> Json | None:
        """Return what an arm did on a seed; None where it has no results yet."""
        found = self.document["results"]
        return next((one for one in found if (one["arm"], one["seed"]) == (arm, seed)), None)

    def cell(self, arm: str, seed: int) -> Json:
        """Return what is known of how an arm ran on a seed."""
        return next((one for one in self.cells if (one["arm"], one["seed"]) == (arm, seed)), {})


def is_benchmark_directory(directory: Path) -> bool:
    """Return whether a directory holds the tables of a benchmark."""
    return (directory / RESULTS).is_file()


def benchmark_report(directory: Path) -> BenchmarkReport:
    """Read everything that the page of a benchmark shows; some arms may still be missing.

    Raises:
        StoreError: A file is missing or damaged.
        ReportError: The files are of an older version.
    """
    found = read_results(directory)
    if any("tasks" not in one for one in found.document["results"]):
        raise ReportError(
            f"{directory / RESULTS} is of an older version",
            "Run the benchmark again: what was trained is kept.",
        )
    status, episodes = directory / STATUS, directory / EPISODES
    report = {
        "document": found.document,
        "comparison": compare_results(found),
        "failures": _failures(found),
        "cells": [_linked(one, directory) for one in read_json(status)] if status.exists() else [],
        "episodes": read_jsonl(episodes) if episodes.exists() else [],
    }
    return BenchmarkReport.model_validate(redact(report))


def _linked(cell: Json, directory: Path) -> Json:
    """Leave out a run directory that is not there: an equal run may have answered the cell."""
    run = cell.get("run")
    beside = run is not None and (directory.absolute().parent / run).is_dir()
    return cell if beside else {**cell, "run": None}


def _failures(found: BenchmarkResults) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for row in found.rows:
        counts.setdefault(row["arm"], Counter())[_ending(row)] += 1
    return {arm: dict(sorted(each.items())) for arm, each in counts.items()}


def _ending(row: Json) -> str:
    """Return how an episode ended: the verdict, and what cut it where it gave no answer."""
    if row["success"]:
        return "solved"
    category: Any = row.get("failure_category") or "unknown"
    reason = row.get("termination_reason")
    return category if reason in (None, "final_answer") else f"{category}, {reason}"
