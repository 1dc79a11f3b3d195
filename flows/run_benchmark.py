"""``opd benchmark``: arms on seeds in this process, or through the deployments of ``opd up``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from core.recipe.benchmark_loading import load_benchmark
from flows.progress import bar
from flows.run_recipe import prepare
from flows.server import server

Mode = Literal["inline", "deployments"]


def run_benchmark(
    path: Path, overrides: Sequence[str], *, mode: Mode = "inline", quiet: bool = False
) -> dict[str, Any]:
    """Run a benchmark and return its summary; bad input is refused before anything starts.

    Args:
        path: A YAML file.
        overrides: ``key=value`` changes to it.
        mode: ``inline`` or ``deployments``.
        quiet: Print nothing.

    Raises:
        OpdError: Whatever went wrong, in two lines.
    """
    started = time.perf_counter()
    grid = load_benchmark(path, overrides)
    if not quiet:
        print(f"{grid.benchmark.name}: {len(grid.cells)} runs, digest {grid.digest[:16]}")
    with server(meanwhile=prepare), bar(quiet=quiet):
        from flows.benchmark import benchmark

        summary = benchmark(benchmark=grid.benchmark, mode=mode)
    summary["wall_time_s"] = round(time.perf_counter() - started, 2)
    if not quiet:
        print_summary(summary)
    return summary


def print_summary(summary: dict[str, Any]) -> None:
    """Print success by arm and seed, what was computed, and where the rows are."""
    for row in summary["table"]:
        rates = [value for name, value in row.items() if name.startswith("seed ")]
        shown = " ".join("      –" if rate is None else f"{rate:7.1%}" for rate in rates)
        print(f"{row['arm']:<32} {shown}")
    for group in summary["identical"]:
        print(f"bitwise equal in all artifacts: {', '.join(group)}")
    seeds = len(summary["table"][0]) - 2
    if seeds == 1:
        print("one seed: no significance is claimed")
    print(
        f"{summary['cells']} runs: {summary['answered_from_store']} from the store, "
        f"{summary['computed']} steps computed, in {summary['wall_time_s']:.1f} s"
    )
    print(f"rows: {summary['view']}/rows.csv")
