"""Which arms of a seed take everything that its arms share, judged by their recipes alone."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel

from core.errors import OpdError
from core.recipe.benchmark_grid import Cell
from core.recipe.loading import Loaded
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from flows.graphs.arm import arm_graph, shared_graph
from flows.graphs.run import Gate, never_stopped
from flows.runs.plan import Unknown, mark_of
from flows.runs.sources import locate_on_disk
from tasks.caching import Step

Place = Callable[[Runtime], Runtime]
"""Where and how the runs of a benchmark are executed, from what a recipe says of it."""


class Outline:
    """The ``call`` of a walk that looks nowhere: a step is known by all that it asks for.

    A store may change under whoever looks twice; this gives the same whenever it is asked.
    """

    def __init__(self) -> None:
        self.marks: set[str] = set()

    def __call__(self, step: Step, spec: BaseModel, *, name: str, **parents: Any) -> Unknown:
        """Note one step."""
        mark = mark_of(step, spec, parents)
        self.marks.add(mark)
        return Unknown(step.name, name, mark)


def sharing_cells(common: Loaded, cells: Sequence[Cell], place: Place) -> list[Cell]:
    """Return the cells of a seed that take every step of what its arms share.

    The others have a teacher or a cold start of their own and compute by themselves what they take
    of it; where no cell takes all, nothing of it is computed for its own sake.

    Args:
        common: What the arms of the seed have in common.
        cells: Of that seed.
        place: Where and how a run of a recipe is executed.
    """
    shared = _marks(common.recipe, place(common.runtime), shared_graph)
    if not shared:
        return []
    return [
        cell
        for cell in cells
        if shared <= _marks(cell.recipe, place(cell.runtime), partial(arm_graph, cold=cell.cold))
    ]


def _marks(recipe: Recipe, runtime: Runtime, graph: Callable[..., object]) -> set[str]:
    outline = Outline()
    try:
        recipe, _, _ = locate_on_disk(recipe, runtime)
        graph(recipe, outline, never_stopped, Gate())
    except OpdError:
        return set()  # whoever runs it is refused in the same words, and the others go on
    return outline.marks
