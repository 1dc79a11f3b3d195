"""``opd benchmark``: arms on seeds in this process, or through the deployments of ``opd up``."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from core.recipe.benchmark_loading import load_benchmark
from flows.commands.run_recipe import prepare
from flows.runs.progress import shown
from flows.server.connection import server

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
    with server(meanwhile=prepare), shown(quiet=quiet):
        from flows.benchmark import benchmark

        summary = benchmark(benchmark=grid.benchmark, mode=mode)
    summary["wall_time_s"] = round(time.perf_counter() - started, 2)
    if not quiet:
        print_summary(summary)
    return summary


def print_summary(summary: dict[str, Any]) -> None:
    """Print success and differences by arm, what was computed, and where the report is."""
    for line in table_lines(summary["table"]):
        print(line)
    print(summary["note"])
    print(f"{summary['comparison']['error_control']}.")
    for group in summary["identical"]:
        print(f"equal byte for byte in all artifacts: {', '.join(group)}")
    print(
        f"{summary['cells']} runs: {summary['answered_from_store']} from the store, "
        f"{summary['computed']} steps computed, in {summary['wall_time_s']:.1f} s"
    )
    print(f"rows: {summary['view']}/rows.csv")
    print(f"report: {summary['view']}/report.html")


def table_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a header and the rows, in columns as wide as their widest cell."""
    names = list(rows[0])
    cells = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()
