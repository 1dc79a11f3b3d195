"""What is known of every cell of a benchmark while it runs, and where a person can read it."""

import logging
from pathlib import Path
from typing import Any

from core.artifacts.codec import write_json
from core.artifacts.filesystem import replace_file
from core.artifacts.record import ArtifactRef
from core.evaluation.benchmark_comparison import COMPARISON
from core.evaluation.benchmark_episodes import EPISODES
from core.evaluation.benchmark_results import write_results
from core.recipe.benchmark_grid import Cell, Grid
from core.recipe.runtime import Runtime
from core.report.benchmark_data import BenchmarkReport
from core.report.benchmark_report import write_benchmark_report
from core.report.benchmark_tables import percent
from core.runs.layout import REPORT, SUMMARY, directory_name
from core.runs.registry import STATUS, register_run
from flows.benchmarks.plan import cell_roles, look_up
from flows.graphs.arm import benchmark_spec
from flows.runs.progress import LISTENER
from tasks.caching import open_store
from tasks.collect_benchmark import arm_result, arm_seconds, arm_sources, collect_benchmark

logger = logging.getLogger(__name__)


class Board:
    """Cells with their results, and a run directory that always shows what is there.

    Args:
        grid: All cells.
        runtime: Replaces that of the recipes, but for the names of the runs.
    """

    def __init__(self, grid: Grid, runtime: Runtime | None) -> None:
        self.grid = grid
        self.runtime = runtime or grid.runtime
        self.results: dict[tuple[str, int], ArtifactRef] = {}
        self.failures: dict[tuple[str, int], str] = {}
        self.faults: list[Exception] = []
        """Failures of this process that nobody foresaw."""
        self.computed = 0
        """Steps that this run computed."""
        self._given = runtime
        self._states = {(cell.arm, cell.seed): "waiting" for cell in grid.cells}

    @property
    def directory(self) -> Path:
        """Directory of the benchmark's tables."""
        return self.runtime.runs / f"benchmark-{self.grid.benchmark.name}"

    def place(self, own: Runtime) -> Runtime:
        """Return where and how a run is executed."""
        if self._given is None:
            return own
        return self._given.model_copy(update={"run_name": own.run_name})

    def look(self) -> list[Cell]:
        """Answer from the store what is there, and return the cells that must run."""
        for name in (COMPARISON, EPISODES, REPORT, SUMMARY):  # of an older run
            (self.directory / name).unlink(missing_ok=True)
        missing = [cell for cell in self.grid.cells if not self.is_answered(cell)]
        self.directory.mkdir(parents=True, exist_ok=True)
        if missing:  # otherwise the end is here already, and shows everything
            self.show()
        # What there is of it stays when the store is cleaned up.
        register_run(self.runtime.store, self.directory)
        return missing

    def is_answered(self, cell: Cell) -> bool:
        """Answer a cell from the store if that can: it ran before, or an equal one did."""
        found = look_up(cell, self.place(cell.runtime)).result
        if found is not None:
            self.results[cell.arm, cell.seed] = found
            self._states[cell.arm, cell.seed] = "cached"
        return found is not None

    def count(self, state: str) -> int:
        """Return how many cells are in a state."""
        return sum(one == state for one in self._states.values())

    def begin(self, cell: Cell) -> None:
        """Note that a cell runs now."""
        self._states[cell.arm, cell.seed] = "running"
        self.show()

    def end(self, cell: Cell) -> None:
        """Take over the results of a cell that ran, from the store."""
        found = look_up(cell, self.place(cell.runtime)).result
        if found is None:
            self.fail(cell, "it ended without a result")
            return
        self.results[cell.arm, cell.seed] = found
        self._states[cell.arm, cell.seed] = "done"
        self.show()
        metrics = open_store(self.runtime.store).record(found).metrics
        self._say(cell, percent(metrics["success_rate"]) + " solved")

    def fail(self, cell: Cell, reason: str) -> None:
        """Note that a cell has no results; the others go on."""
        logger.info("%s failed: %s", cell.name, reason)
        self.failures[cell.arm, cell.seed] = reason
        self._states[cell.arm, cell.seed] = "failed"
        self.show()
        self._say(cell, "failed")  # the error at the end says why

    def _say(self, cell: Cell, what: str) -> None:
        over = len(self._states) - self.count("waiting") - self.count("running")
        LISTENER.get().said(f"{over} of {len(self._states)} runs; {cell.name}: {what}")

    def collect(self) -> ArtifactRef:
        """Put what is there together, as one artifact."""
        roles = {key: role for key, role in cell_roles(self.grid).items() if key in self.results}
        parents = {role: self.results[key] for key, role in roles.items()}
        call = collect_benchmark.prepare(
            benchmark_spec(self.grid, roles),
            runtime=self.runtime,
            name=self.grid.benchmark.name,
            **parents,
        )
        self.computed += call.found is None
        collected = collect_benchmark.perform(call)
        made = open_store(self.runtime.store).path(collected)
        for name in (COMPARISON, EPISODES):
            replace_file(self.directory / name, [(made / name).read_bytes()])
        return collected

    def report(self) -> BenchmarkReport:
        """Write the page and its summary, and return what they say."""
        return write_benchmark_report(self.directory)

    def show(self) -> dict[str, Any]:
        """Write tables of what is there, and the state of every cell; returns the results."""
        store = open_store(self.runtime.store)
        self.directory.mkdir(parents=True, exist_ok=True)
        roles = {key: role for key, role in cell_roles(self.grid).items() if key in self.results}
        done = {key: arm_result(store, ref) for key, ref in self.results.items()}
        document = write_results(self.directory, benchmark_spec(self.grid, roles), done)
        write_json(self.directory / STATUS, self._status())
        return document

    def _status(self) -> list[dict[str, Any]]:
        store = open_store(self.runtime.store)
        runs = {
            (cell.arm, cell.seed): directory_name(cell.recipe, self.place(cell.runtime))
            for cell in self.grid.cells
        }
        lines = []
        for (arm, seed), state in self._states.items():
            ref = self.results.get((arm, seed))
            lines.append(
                {
                    "arm": arm,
                    "seed": seed,
                    "state": state,
                    "reason": self.failures.get((arm, seed)),
                    "training_seconds": arm_seconds(store, ref) if ref is not None else None,
                    "result": ref.model_dump() if ref is not None else None,
                    "sources": arm_sources(store, ref) if ref is not None else [],
                    "run": runs[arm, seed],
                }
            )
        return lines
