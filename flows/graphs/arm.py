"""The graphs of a benchmark's parts, as plain calls: one arm on one seed, and what arms share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.recipe.benchmark import Benchmark
from core.recipe.benchmark_grid import Cell, Grid, declared, planned_steps
from core.recipe.benchmark_specs import ArmLabel, ArmSpec, BenchmarkSpec, CellSpec
from core.recipe.objective import METHODS, objective_words, run_kind, trained_states
from core.recipe.recipe import Recipe
from core.training.stopping import StopReason
from flows.graphs.refs import Call, Ref, RunRefs
from flows.graphs.run import Gate, prepare_run, run_graph
from flows.graphs.student import start
from tasks.collect_arm import collect_arm

COLD_START_ONLY = "cold_start_only"


@dataclass(frozen=True)
class ArmRefs:
    """What one arm leaves behind on one seed."""

    run: RunRefs
    """Its run."""
    result: Ref
    """Its rows, curve and costs."""


def arm_graph(
    recipe: Recipe,
    call: Call,
    stopped: Callable[[Ref], StopReason | None],
    gate: Gate,
    cold: Recipe | None = None,
    run: RunRefs | None = None,
) -> ArmRefs:
    """Walk the run of an arm from a cold start (None: its own), and collect what it amounts to."""
    run = run_graph(recipe, call, stopped, gate, run, cold)
    spec = ArmSpec(split=recipe.eval.split, kind=run_kind(recipe))
    name = f"{run_kind(recipe)}-seed-{recipe.run.seed}"
    return ArmRefs(run, call(collect_arm, spec, name=name, **run.parts))


def shared_graph(
    recipe: Recipe,
    call: Call,
    stopped: Callable[[Ref], StopReason | None],
    gate: Gate,
) -> RunRefs:
    """Walk what the arms of a seed have in common: tasks, teacher and its gate, cold start."""
    run = prepare_run(recipe, call, gate)
    start(recipe, call, run, stopped)
    return run


def benchmark_spec(grid: Grid, roles: dict[tuple[str, int], str]) -> BenchmarkSpec:
    """Return what the results of a benchmark depend on, besides those of its arms.

    Args:
        grid: All cells.
        roles: Parent that holds the results of a cell, by arm and seed; others have none.
    """
    benchmark, first = grid.benchmark, grid.cells[: len(grid.arms)]
    return BenchmarkSpec(
        name=benchmark.name,
        description=benchmark.description,
        digest=grid.digest,
        arms=tuple(
            ArmLabel(
                name=arm.name,
                description=arm.description,
                method=METHODS[run_kind(cell.recipe)] if trains(cell) else COLD_START_ONLY,
                objective=objective_words(cell.recipe) if trains(cell) else "nothing after it",
                states=trained_states(cell.recipe),
                differs=declared(cell, grid.common[cell.seed]),
            )
            for arm, cell in zip(grid.arms, first, strict=True)
        ),
        seeds=benchmark.seeds,
        baseline=grid.baseline,
        budget_axis=benchmark.budget.axis,
        budget_limit=benchmark.budget.limit,
        eval_split=benchmark.eval_split,
        cells=tuple(_cell_spec(cell, roles) for cell in grid.cells),
        comparisons=grid.comparisons,
        alpha=benchmark.statistics.alpha,
        looks=benchmark.statistics.looks,
        published=_published(benchmark),
    )


def _published(benchmark: Benchmark) -> dict[str, Any] | None:
    shown = benchmark.published
    return shown.model_dump(mode="json") if shown is not None else None


def trains(cell: Cell) -> bool:
    """Return whether an arm does anything after its cold start."""
    return planned_steps(cell.recipe) > 0


def _cell_spec(cell: Cell, roles: dict[tuple[str, int], str]) -> CellSpec:
    return CellSpec(arm=cell.arm, seed=cell.seed, role=roles.get((cell.arm, cell.seed)))
