"""What varies in a crossed design: seeds, tasks, and the rest. The same tasks under every seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Outcomes = Mapping[int, Mapping[str, float]]
"""``{run seed: {task id: value}}``."""

ROUNDING = 1e-9
"""A spread of rates below this is none: sums of thirds differ in their last bit."""


@dataclass(frozen=True)
class Components:
    """Variance components of y = mean + seed + task + rest, by mean squares.

    Searle, Casella and McCulloch, "Variance Components" (1992), chapter 4: E[MS_seed] =
    σ²_rest + T·σ²_seed, E[MS_task] = σ²_rest + S·σ²_task, E[MS_rest] = σ²_rest.
    """

    seeds: int
    tasks: int
    mean: float
    between_seeds: float
    """σ²_seed, at least 0."""
    between_tasks: float
    """σ²_task, at least 0."""
    rest: float
    """σ² of a seed on a task, sampling included."""
    degrees: float
    """Degrees of freedom of ``standard_error`` (Satterthwaite 1946); 0 where there are none."""

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over both factors."""
        return self.standard_error_of(self.seeds, self.tasks)

    def standard_error_of(self, seeds: int, tasks: int) -> float:
        """Return what the standard error would be with other numbers of seeds and tasks."""
        return math.sqrt(
            self.between_seeds / seeds + self.between_tasks / tasks + self.rest / (seeds * tasks)
        )


def outcome_matrix(outcomes: Outcomes) -> np.ndarray:
    """Return values as [seed, task], both in ascending order.

    Raises:
        ValueError: If the design is empty or not crossed, or a value is not finite.
    """
    seeds = sorted(outcomes)
    tasks = sorted(outcomes[seeds[0]]) if seeds else []
    if not tasks or any(sorted(outcomes[one]) != tasks for one in seeds):
        raise ValueError("a crossed design needs the same non-empty tasks under every seed")
    values_ST = np.array([[outcomes[one][task] for task in tasks] for one in seeds], dtype=float)
    if not np.isfinite(values_ST).all():
        raise ValueError("a crossed design needs a finite value in every cell")
    return values_ST


def components(values_ST: np.ndarray) -> Components:
    """Split the variance of a crossed design.

    A component whose estimate is negative counts as 0, and its factor is pooled with the rest.

    Args:
        values_ST: One value per seed and task; at least two of each.

    Raises:
        ValueError: If there are fewer.
    """
    seeds, tasks = values_ST.shape
    if seeds < 2 or tasks < 2:
        raise ValueError(f"{seeds} seeds and {tasks} tasks: variance needs two of each")
    mean = float(values_ST.mean())
    of_seeds = values_ST.mean(axis=1) - mean
    of_tasks = values_ST.mean(axis=0) - mean
    rest_ST = values_ST - mean - of_seeds[:, None] - of_tasks[None, :]
    free = (seeds - 1) * (tasks - 1)
    squares = (
        tasks * float(of_seeds @ of_seeds) / (seeds - 1),
        seeds * float(of_tasks @ of_tasks) / (tasks - 1),
        float((rest_ST**2).sum()) / free,
    )
    return Components(
        seeds=seeds,
        tasks=tasks,
        mean=mean,
        between_seeds=max(squares[0] - squares[2], 0.0) / tasks,
        between_tasks=max(squares[1] - squares[2], 0.0) / seeds,
        rest=squares[2],
        degrees=_degrees(squares, (seeds - 1, tasks - 1, free)),
    )


def _degrees(squares: tuple[float, float, float], free: tuple[int, int, int]) -> float:
    """Return Satterthwaite's degrees of freedom of the sum of mean squares that is used.

    With both factors the sum is MS_seed + MS_task − MS_rest, with one it is that factor's mean
    square, with none it is MS_rest.
    """
    seed, task, rest = squares
    used = [(seed, free[0])] if seed > rest else []
    used += [(task, free[1])] if task > rest else []
    used += [(-rest, free[2])] if len(used) == 2 else []
    used = used or [(rest, free[2])]
    total = sum(square for square, _ in used)
    spread = sum(square * square / degrees for square, degrees in used)
    return total * total / spread if spread > 0.0 else 0.0
