"""The smallest descriptions of the steps that collect what arms did."""

from pydantic import JsonValue

from core.recipe.objective import RunKind
from core.recipe.specs import Spec


class ArmSpec(Spec):
    """Collect what one run amounts to; its name is no part of it."""

    split: str
    """Tasks of the final evaluation."""
    kind: RunKind
    """What the run is."""


class ArmLabel(Spec):
    """What a table says of an arm."""

    name: str
    """Label."""
    description: str
    """What it is there for."""
    method: str
    """What it does, in the words of ``core.recipe.objective.METHODS``."""
    objective: str
    """What it minimises, on whose states."""
    states: str
    """Whose states it is trained on, as ``trained_states`` says it."""
    differs: tuple[tuple[str, str, str], ...]
    """Key, value in the common recipe, and own value, of everything that it declares."""


class CellSpec(Spec):
    """One seed of one arm, and the parent that holds it."""

    arm: str
    """Label of the arm."""
    seed: int
    """Run seed."""
    role: str | None
    """Parent that holds its results; null where there are none yet."""


class BenchmarkSpec(Spec):
    """Put the results of all arms and seeds together."""

    name: str
    """Label of the benchmark."""
    description: str
    """What is asked."""
    digest: str
    """SHA-256 of everything that decides a number of it."""
    arms: tuple[ArmLabel, ...]
    """In their order."""
    seeds: tuple[int, ...]
    """Run seeds."""
    baseline: str
    """Arm that the others are compared with."""
    budget_axis: str
    """What is equal in all arms."""
    budget_limit: float | None
    """How much of it; null for equal updates."""
    eval_split: str
    """Tasks on which the arms are compared."""
    cells: tuple[CellSpec, ...]
    """Every arm on every seed."""
    comparisons: tuple[tuple[str, str], ...]
    """Arm, and the arm that it is compared with."""
    alpha: float
    """Chance of any false decision."""
    looks: int
    """How often the results are looked at in all."""
    published: dict[str, JsonValue] | None = None
    """What others published, as section ``published`` of a benchmark has it."""
