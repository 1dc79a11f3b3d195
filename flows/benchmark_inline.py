"""All missing cells of a benchmark in this process, as subflows, one after the other."""

import logging
from itertools import groupby

from core.recipe.benchmark_grid import Cell
from flows.benchmark_arm import benchmark_arm
from flows.benchmark_board import Board

logger = logging.getLogger(__name__)


def run_inline(board: Board, missing: list[Cell]) -> None:
    """Run what the arms of each seed share, then its arms; a failure stops nothing but itself."""
    for seed, cells in groupby(missing, key=lambda cell: cell.seed):
        own = list(cells)
        reason = _run_shared(board, seed)
        for cell in own:
            if reason is None:
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
        logger.exception("what the arms of seed %d share failed", seed)
        return str(error)
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
        logger.exception("%s failed", cell.name)
        board.fail(cell, str(error))
        return
    board.computed += done["computed"]
    board.end(cell)
