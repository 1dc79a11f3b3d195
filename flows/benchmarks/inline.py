"""All missing cells of a benchmark in this process, as subflows, one after the other."""

from itertools import groupby

from core.errors import OpdError
from core.recipe.benchmark_grid import Cell
from flows.benchmark_arm import benchmark_arm
from flows.benchmarks.board import Board
from flows.benchmarks.sharing import sharing_cells
from flows.runs.last_error import keep_tracebacks


def run_inline(board: Board, missing: list[Cell]) -> None:
    """Run what the arms of each seed share, then its arms; a failure stops nothing but itself."""
    for seed, cells in groupby(missing, key=lambda cell: cell.seed):
        own = list(cells)
        sharing = sharing_cells(board.grid.common[seed], own, board.place)
        reason = _run_shared(board, seed) if sharing else None
        for cell in own:
            if reason is None or cell not in sharing:
                _run_arm(board, cell)
            else:
                board.fail(cell, f"what its arms share failed: {reason}")


def _run_shared(board: Board, seed: int) -> str | None:
    """Return why it failed, or None."""
    common = board.grid.common[seed]
    try:
        done = benchmark_arm(
            recipe=common.recipe, runtime=board.place(common.runtime), part="shared"
        )
    except Exception as error:
        return _reason(board, error)
    board.computed += done["computed"]
    return None


def _run_arm(board: Board, cell: Cell) -> None:
    if board.is_answered(cell):
        return
    board.begin(cell)
    try:
        runtime = board.place(cell.runtime)
        done = benchmark_arm(recipe=cell.recipe, runtime=runtime, cold=cell.cold)
    except Exception as error:
        board.fail(cell, _reason(board, error))
        return
    board.computed += done["computed"]
    board.end(cell)


def _reason(board: Board, error: Exception) -> str:
    """Return what a person is told; a failure that nobody foresaw is kept for a bug report."""
    if isinstance(error, OpdError):
        return str(error)
    board.faults.append(error)
    keep_tracebacks(board.faults)
    return f"{type(error).__name__}: {error}"
