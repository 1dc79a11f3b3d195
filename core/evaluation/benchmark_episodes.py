"""Episodes of the same tasks by every arm of one seed, to be read side by side."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.artifacts.codec import parse_strict
from core.trajectory.io import parse_trajectory
from core.trajectory.trajectory import Trajectory

Json = dict[str, Any]

EPISODES = "episodes.jsonl"
TASKS = 6


def chosen_tasks(rows: Sequence[Json], seed: int, count: int = TASKS) -> list[str]:
    """Return the tasks on which the arms of a seed disagree most, in the order of the evaluation.

    Args:
        rows: Of a benchmark.
        seed: Whose episodes are shown.
        count: At most so many.
    """
    solved: dict[str, list[bool]] = {}
    for row in rows:
        if row["seed"] == seed and row["sample"] == 0:
            solved.setdefault(row["task_id"], []).append(row["success"])
    places = {task: place for place, task in enumerate(solved)}
    split = {task: min(sum(each), len(each) - sum(each)) for task, each in solved.items()}
    first = sorted(solved, key=lambda task: (-split[task], places[task]))[:count]
    return sorted(first, key=places.__getitem__)


def shown_episodes(
    files: Mapping[str, Path], rows: Sequence[Json], seed: int, count: int = TASKS
) -> Iterator[Json]:
    """Yield one row per task and arm: its spans, whether it was solved, and how it ended.

    Args:
        files: Trajectories of the final evaluation of each arm.
        rows: Of the benchmark.
        seed: Whose episodes they are.
        count: At most so many tasks.

    Raises:
        TrajectoryError: A row disagrees with itself.
    """
    wanted = {
        row["trajectory_id"]: row["task_id"]
        for row in rows
        if row["seed"] == seed and row["sample"] == 0
    }
    tasks = chosen_tasks(rows, seed, count)
    for arm, path in files.items():
        ids = {own for own, task in wanted.items() if task in tasks}
        for one in _read(path, ids):
            yield {"arm": arm, "seed": seed, **_shown(one)}


def _read(path: Path, ids: Collection[str]) -> Iterator[Trajectory]:
    lines = (line for line in path.read_bytes().split(b"\n") if line)
    for number, line in enumerate(lines, start=1):
        if parse_strict(line.decode()).get("trajectory_id") in ids:
            yield parse_trajectory(line, f"{path}, row {number}")


def _shown(one: Trajectory) -> Json:
    return {
        "task_id": one.task_id,
        "trajectory_id": one.trajectory_id,
        "solved": one.solved,
        "reason": one.termination_reason.value,
        "expected": one.verification.expected,
        "predicted": one.verification.predicted,
        "spans": [
            {"type": span.span_type.value, "model": span.is_model, "text": span.text}
            for span in one.spans
        ],
    }
