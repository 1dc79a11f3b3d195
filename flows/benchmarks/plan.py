"""``opd plan BENCHMARK``: what is there of every arm and seed, and what a run would compute."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.artifacts.record import ArtifactRef, Record
from core.recipe.benchmark_grid import Cell, Grid
from core.recipe.benchmark_loading import is_benchmark, load_benchmark
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.validation import check
from flows.graphs.arm import arm_graph, benchmark_spec
from flows.runs.plan import Plan, PlannedStep, Planner, absent_words
from flows.runs.sources import locate, locate_on_disk
from tasks.caching import open_store
from tasks.collect_benchmark import collect_benchmark


@dataclass(frozen=True)
class CellPlan:
    """What is there of one arm on one seed."""

    cell: Cell
    plan: Plan
    result: ArtifactRef | None
    """Its results, where nothing is left to do."""

    @property
    def seconds(self) -> float | None:
        """Wall seconds of its steps, of those that are missing when they ran last.

        Steps that never ran count nothing; None where that holds for all of them.
        """
        known = [step.seconds for step in self.plan.steps if step.seconds is not None]
        return sum(known) if known else None

    @property
    def never_run(self) -> int:
        """How many of its steps nothing is known of, not even from another run."""
        return sum(step.seconds is None for step in self.plan.steps)


@dataclass(frozen=True)
class GridPlan:
    """What a benchmark would compute."""

    cells: tuple[CellPlan, ...]
    last: PlannedStep
    """The step that puts everything together."""
    digest: str
    """What identifies the question, as ``opd benchmark`` prints it."""

    def missing(self) -> dict[str, PlannedStep]:
        """Return every step that would be computed, once however many arms share it."""
        steps = [step for one in self.cells for step in one.plan.steps]
        return {step.mark: step for step in [*steps, self.last] if step.status != "hit"}

    def as_document(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "digest": self.digest,
            "to_compute": len(self.missing()),
            "cells": [
                {
                    "arm": one.cell.arm,
                    "seed": one.cell.seed,
                    "cached": one.result is not None,
                    "seconds": None if one.seconds is None else round(one.seconds, 3),
                    "never_run": one.never_run,
                    **one.plan.as_document(),
                }
                for one in self.cells
            ],
        }


def plan_benchmark(path: Path, overrides: Sequence[str] = ()) -> GridPlan:
    """Plan a benchmark file.

    Raises:
        RecipeError: The benchmark or the recipe of an arm is refused.
    """
    return plan_grid(load_benchmark(path, overrides))


def plan_grid(grid: Grid, runtime: Runtime | None = None) -> GridPlan:
    """Look up every step of every cell, and say why those that are missing are.

    Args:
        grid: All cells.
        runtime: Replaces that of the recipes.
    """
    history: dict[str, list[Record]] = {}
    cells = tuple(_look_only(cell, runtime, history) for cell in grid.cells)
    shared = runtime or grid.runtime
    planner = Planner(open_store(shared.store), shared, history)
    results = {
        role: one.result if one.result is not None else one.plan.steps[-1].as_unknown()
        for role, one in zip(cell_roles(grid).values(), cells, strict=True)
    }
    spec = benchmark_spec(grid, cell_roles(grid))
    planner(collect_benchmark, spec, name=grid.benchmark.name, **results)
    return GridPlan(cells, planner.plan.steps[-1], grid.digest)


def cell_roles(grid: Grid) -> dict[tuple[str, int], str]:
    """Return the role of each cell's results in those of the benchmark."""
    places = {arm.name: place for place, arm in enumerate(grid.arms)}
    return {
        (cell.arm, cell.seed): f"arm_{places[cell.arm]:03d}_seed_{cell.seed}" for cell in grid.cells
    }


def look_up(
    cell: Cell, runtime: Runtime | None = None, history: dict[str, list[Record]] | None = None
) -> CellPlan:
    """Say what is there of one cell, without computing anything.

    Args:
        cell: The arm and its seed.
        runtime: Replaces that of its recipe.
        history: Records for explanations, shared between cells; None explains nothing.
    """
    check(cell.recipe, runtime or cell.runtime)
    recipe, placed = locate(cell.recipe, runtime or cell.runtime)
    return _walked(cell, recipe, placed, history)


def _look_only(cell: Cell, runtime: Runtime | None, history: dict[str, list[Record]]) -> CellPlan:
    """Say of one cell what can be said without fetching a model."""
    check(cell.recipe, runtime or cell.runtime)
    recipe, placed, absent = locate_on_disk(cell.recipe, runtime or cell.runtime)
    found = _walked(cell, recipe, placed, history)
    found.plan.absent = absent
    return found


def _walked(
    cell: Cell, recipe: Recipe, placed: Runtime, history: dict[str, list[Record]] | None
) -> CellPlan:
    explains = history is not None
    planner = Planner(open_store(placed.store), placed, history, explains=explains)
    refs = planner.walk(recipe, partial(arm_graph, cold=cell.cold))
    complete = refs is not None and isinstance(refs.result, ArtifactRef)
    return CellPlan(cell, planner.plan, refs.result if refs is not None and complete else None)


def grid_text(path: Path, overrides: Sequence[str], *, as_json: bool) -> str:
    """Return the plan of a benchmark as text or JSON; nothing where a file is a single recipe."""
    if not is_benchmark(path):
        return ""
    planned = plan_benchmark(path, overrides)
    if as_json:
        return json.dumps(planned.as_document(), indent=2, sort_keys=True)
    lines = [line for one in planned.cells for line in _cell_lines(one)]
    count = len(planned.missing())
    lines.append(f"{count} steps to compute, those that arms share counted once")
    lines.append(f"digest {planned.digest}")
    absent = [absent_words(one.plan.absent) for one in planned.cells if one.plan.absent]
    lines.extend(dict.fromkeys(absent))
    return "\n".join(lines)


def _duration(one: CellPlan) -> str:
    """Say how long the steps of a cell took, as far as any of them ever ran."""
    if one.seconds is None:
        return "never run"
    unknown = f", {one.never_run} steps never run" if one.never_run else ""
    return f"{one.seconds:9.1f} s when last run{unknown}"


def _cell_lines(one: CellPlan) -> list[str]:
    """Return a line for a cell, and why its first missing step is missing."""
    todo = [step for step in one.plan.steps if step.status != "hit"]
    state = "cached" if not todo else f"{len(todo)} of {len(one.plan.steps)} steps"
    lines = [f"{one.cell.name:<40} {state:<16} {_duration(one)}"]
    why = todo[0].reasons if todo else ()
    lines.extend(f"    {todo[0].step} {todo[0].name}: {reason}" for reason in why)
    if one.plan.refusal is not None:
        lines.append(f"    the run ends there: {one.plan.refusal}")
    return lines
