"""The flow ``benchmark``: arms on seeds from one cold start each, and one table of all rows."""

from pathlib import Path
from typing import Any, Literal

from prefect import flow
from prefect.runtime import flow_run

from core.errors import BenchmarkError
from core.recipe.benchmark import Benchmark
from core.recipe.benchmark_grid import make_grid
from core.recipe.benchmark_loading import load_benchmark
from core.recipe.runtime import Runtime
from core.report.benchmark_tables import success_table
from core.runs.layout import REPORT
from flows.benchmarks.artifacts import publish
from flows.benchmarks.board import Board
from flows.runs.last_error import LAST_ERROR
from tasks.caching import open_store

DEFAULT_BENCHMARK = "recipes/benchmarks/toy.yaml"

Mode = Literal["inline", "deployments"]


def _run_name() -> str:
    given = flow_run.get_parameters()
    if given.get("benchmark") is None:
        return given.get("benchmark_path", DEFAULT_BENCHMARK)
    return Benchmark.model_validate(given["benchmark"]).name


@flow(name="benchmark", flow_run_name=_run_name, validate_parameters=True)
def benchmark(
    benchmark: Benchmark | None = None,
    runtime: Runtime | None = None,
    benchmark_path: str = DEFAULT_BENCHMARK,
    overrides: list[str] | None = None,
    mode: Mode = "inline",
) -> dict[str, Any]:
    """Run every arm on every seed that the store does not answer, and collect all rows.

    A failing arm stops no other one. A finished one is answered without entering its flow.

    Args:
        benchmark: What to compare; where it is missing, ``benchmark_path`` is loaded.
        runtime: Where and how; where it is missing, as the recipes say.
        benchmark_path: A YAML file, relative to the directory of the deployment.
        overrides: ``key=value`` changes to that file.
        mode: In this process, or one deployment run per arm and seed on the pool ``gpu``.

    Raises:
        RecipeError: The benchmark or the recipe of an arm is refused; nothing ran.
        BenchmarkError: Some arms failed; the results of the others are there.
        ServerError: Nothing takes deployment runs.
    """
    if benchmark is None:
        grid = load_benchmark(Path(benchmark_path), overrides or [])
    else:
        grid = make_grid(benchmark)
    board = Board(grid, runtime)
    missing = board.look()
    if mode == "inline":
        from flows.benchmarks.inline import run_inline

        run_inline(board, missing)
    else:
        from flows.benchmarks.deployments import run_deployments

        run_deployments(board, missing)
    collected = board.collect()
    summary = _summary(board, board.show())
    summary["result"] = collected.model_dump()
    summary["result_path"] = str(open_store(board.runtime.store).path(collected))
    publish(board, summary)
    if board.failures:
        raise _failed(board)
    return summary


def _summary(board: Board, document: dict[str, Any]) -> dict[str, Any]:
    report = board.report()
    shown = success_table(report)
    return {
        "name": document["name"],
        "digest": document["digest"],
        "seeds": document["seeds"],
        "table": [dict(zip(shown.columns, row, strict=True)) for row in shown.rows],
        "note": shown.note,
        "comparison": report.comparison,
        "identical": document["identical"],
        "missing": document["missing"],
        "cells": len(board.grid.cells),
        "answered_from_store": board.count("cached"),
        "computed": board.computed,
        "view": str(board.directory),
        "report": str((board.directory / REPORT).absolute()),
    }


def _failed(board: Board) -> BenchmarkError:
    names = [f"{arm} on seed {seed}" for arm, seed in board.failures]
    first = next(iter(board.failures.values())).splitlines()
    return BenchmarkError(
        f"{len(names)} of {len(board.grid.cells)} runs failed: {', '.join(names)}: "
        f"{first[0] if first else 'no message'}",
        f"The others are in {board.directory}; "
        + (f"tracebacks are in {LAST_ERROR}; " if board.faults else "")
        + "the same command runs only what is missing.",
    )
