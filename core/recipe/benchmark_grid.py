"""From a benchmark to one recipe per arm and seed, or one clear refusal before anything runs."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from core.artifacts.key import canonical_json
from core.errors import RecipeError
from core.recipe.benchmark import Arm, Benchmark
from core.recipe.benchmark_statistics import Published
from core.recipe.loading import Loaded, load, load_text
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schedule import steps_per_cycle
from core.recipe.sweep import assignments, leaves, points
from core.recipe.syntax import write_document

BUDGET_KEYS = {
    "selected_training_tokens": "train.max_selected_training_tokens",
    "generated_tokens": "train.max_generated_tokens",
    "wall_time": "train.max_wall_seconds",
}
"""Axis of a budget view -> key of the recipe that ends a run on it."""

OWN = ("run.seed", "report.enabled", "runtime.run_name", "runtime.inherited.*")
"""Keys that the grid itself sets, or that have no effect."""

MAX_SHOWN = 12


@dataclass(frozen=True)
class Cell:
    """One seed of one arm."""

    arm: str
    seed: int
    recipe: Recipe
    cold: Recipe
    """Recipe whose cold start it begins from: the common one, unless the arm changes that."""
    runtime: Runtime

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.arm}/seed-{self.seed}"


@dataclass(frozen=True)
class Grid:
    """All cells of an accepted benchmark, and what their arms share."""

    benchmark: Benchmark
    arms: tuple[Arm, ...]
    """Those that were written and those of the sweep."""
    cells: tuple[Cell, ...]
    """Seed by seed, in the order of the arms."""
    common: Mapping[int, Loaded]
    """The recipe without any arm's overrides, by seed."""
    digest: str
    """SHA-256 of everything that decides a number: note it before the seeds are run."""

    @property
    def baseline(self) -> str:
        """Arm that the others are compared with."""
        return self.benchmark.baseline or self.arms[0].name

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Arm, and the arm that it is compared with."""
        others = [arm.name for arm in self.arms if arm.name != self.baseline]
        return self.benchmark.comparisons or tuple((name, self.baseline) for name in others)

    @property
    def runtime(self) -> Runtime:
        """Execution settings that all arms share."""
        return self.common[self.benchmark.seeds[0]].runtime


def make_grid(benchmark: Benchmark) -> Grid:
    """Load every arm on every seed; nothing is returned unless all of them may run.

    Raises:
        RecipeError: A recipe is refused, arms are not distinct, an arm differs in a key that is
            not declared, or arms that should take equally many steps do not.
    """
    arms = _arms(benchmark)
    _check_labels(benchmark, arms)
    common = {seed: _load(benchmark, seed) for seed in benchmark.seeds}
    cells = tuple(
        _cell(benchmark, arm, seed, common[seed]) for seed in benchmark.seeds for arm in arms
    )
    for cell in cells:
        _check_differences(benchmark, cell, common[cell.seed])
        _check_start(cell)
        _check_measured(cell)
    if benchmark.budget.axis == "optimizer_steps":
        _check_steps(cells)
    return Grid(benchmark, arms, cells, common, _digest(benchmark, arms, cells))


def planned_steps(recipe: Recipe) -> int:
    """Return the optimizer steps that a run takes after its cold start, unless it stops early."""
    return steps_per_cycle(recipe) * recipe.train.cycles


def _arms(benchmark: Benchmark) -> tuple[Arm, ...]:
    swept = points(benchmark.sweep) if benchmark.sweep else []
    return (*benchmark.arms, *(Arm(name=_swept_name(one), overrides=one) for one in swept))


def _swept_name(point: Mapping[str, Any]) -> str:
    words = [f"{key.rpartition('.')[2]}={value}" for key, value in point.items()]
    return "+".join(words).replace(" ", "")


def _check_labels(benchmark: Benchmark, arms: Sequence[Arm]) -> None:
    if not arms:
        raise RecipeError("arms: is empty, and so is sweep", "Name at least one arm.")
    names = [arm.name for arm in arms]
    for key, values in (("arms", names), ("seeds", benchmark.seeds)):
        twice = [value for place, value in enumerate(values) if value in values[:place]]
        if twice:
            raise RecipeError(f"{key}: {twice[0]} is there twice", "Keep one of the two.")
    if benchmark.baseline not in (None, *names):
        raise RecipeError(
            f"baseline = {benchmark.baseline}: there is no such arm",
            f"Choose one of {', '.join(names)}.",
        )
    _check_pairs(benchmark, names)
    limited = benchmark.budget.axis in BUDGET_KEYS
    if limited != (benchmark.budget.limit is not None):
        raise RecipeError(
            f"budget.limit: {'is missing' if limited else 'has no meaning'} where budget.axis is "
            f"{benchmark.budget.axis}",
            "Give tokens or seconds with an axis that counts them, and none with optimizer_steps.",
        )


def _check_pairs(benchmark: Benchmark, names: Sequence[str]) -> None:
    published = benchmark.published or Published(source="")
    pairs = [*benchmark.comparisons, *((one.arm, one.against) for one in published.comparisons)]
    for key, named in (
        ("comparisons", [name for pair in pairs for name in pair]),
        ("published.arms", [one.arm for one in published.arms]),
    ):
        unknown = [name for name in named if name not in names]
        if unknown:
            raise RecipeError(
                f"{key}: {unknown[0]}: there is no such arm", f"Choose of {', '.join(names)}."
            )
    for arm, against in pairs:
        if arm == against:
            raise RecipeError(
                f"comparisons: {arm} is compared with itself", "Name two different arms."
            )


def _load(benchmark: Benchmark, seed: int, arm: Arm | None = None) -> Loaded:
    """Load the recipe of an arm, or the common one."""
    given = [*assignments(benchmark.common_overrides)]
    given += assignments({"cold_start": benchmark.cold_start} if benchmark.cold_start else {})
    given += _budget(benchmark)
    given += [f"eval.split={benchmark.eval_split}", "report.enabled=false", f"run.seed={seed}"]
    given += [f'run.name="{benchmark.name}-{arm.name if arm else "common"}"']
    own = dict(leaves(arm.overrides)) if arm else {}
    given += assignments(own)
    if own.get("run.mode") == "offline_kd":
        given.append("cache.reuse_across_policy_versions=true")
    if isinstance(benchmark.base, str):
        return load(benchmark.base, given)
    return load_text(write_document(benchmark.base), given, origin=f"base of {benchmark.name}")


def _budget(benchmark: Benchmark) -> list[str]:
    key, limit = BUDGET_KEYS.get(benchmark.budget.axis), benchmark.budget.limit
    if key is None or limit is None:
        return []
    return [f"{key}={limit if key.endswith('seconds') else int(limit)}"]


def _cell(benchmark: Benchmark, arm: Arm, seed: int, common: Loaded) -> Cell:
    begins = _only_cold_start(arm)
    try:
        loaded = _load(benchmark, seed, arm)
        cold = _load(benchmark, seed, begins) if begins.overrides else common
    except RecipeError as error:
        raise RecipeError(f"arm {arm.name}, seed {seed}: {error.message}", error.hint) from error
    return Cell(arm.name, seed, loaded.recipe, cold.recipe, loaded.runtime)


def _only_cold_start(arm: Arm) -> Arm:
    """Return an arm that leaves all but the cold start as the common recipe has it.

    What an arm selects or averages otherwise is about its own training, not about its start.
    """
    own = {key: value for key, value in leaves(arm.overrides) if key.split(".")[0] == "cold_start"}
    return arm.model_copy(update={"overrides": own})


def _check_differences(benchmark: Benchmark, cell: Cell, common: Loaded) -> None:
    allowed = (*benchmark.allowed_differences, *benchmark.sweep, *OWN)
    found = [
        (path, here, there)
        for path, here, there in differences(_values(cell), _values(common))
        if not any(fnmatchcase(path, one) or f"{path}.*" == one for one in allowed)
    ]
    if found:
        shown = [f"{path} ({there!r} → {here!r})" for path, here, there in found[:MAX_SHOWN]]
        more = f" and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
        raise RecipeError(
            f"arm {cell.arm}, seed {cell.seed} differs from the common recipe in "
            f"{', '.join(shown)}{more}",
            "Add what is meant to allowed_differences, or move it to common_overrides.",
        )


def declared(cell: Cell, common: Loaded) -> tuple[tuple[str, str, str], ...]:
    """Return key, common value and own value of everything in which an arm differs, as text."""
    found = differences(_values(cell), _values(common))
    return tuple(
        (path, json.dumps(there), json.dumps(here))
        for path, here, there in sorted(found, key=lambda one: one[0])
        if not any(fnmatchcase(path, one) for one in OWN)
    )


def _values(one: Cell | Loaded) -> dict[str, Any]:
    runtime = one.runtime.model_dump(mode="json")
    return {**one.recipe.model_dump(mode="json"), "runtime": runtime}


def differences(
    here: Mapping[str, Any], there: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted path and both values of every leaf in which two recipes differ."""
    for key in here.keys() | there.keys():
        left, right = here.get(key), there.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            yield from differences(left, right, f"{prefix}{key}.")
        elif left != right:
            yield f"{prefix}{key}", left, right


def _check_start(cell: Cell) -> None:
    if cell.cold.train.sft_warmup_cycles or cell.recipe.train.sft_warmup_cycles:
        raise RecipeError(
            f"arm {cell.arm}, seed {cell.seed}: train.sft_warmup_cycles hands over an optimizer, "
            "and arms share weights alone",
            "Use section cold_start.",
        )


def _check_measured(cell: Cell) -> None:
    if not cell.recipe.eval.enabled:
        raise RecipeError(
            f"arm {cell.arm}, seed {cell.seed}: eval.enabled is false, so nothing can be compared",
            "Leave eval.enabled out.",
        )


def _check_steps(cells: Sequence[Cell]) -> None:
    """Arms that train take equally many steps; one that only has the cold start takes none."""
    trained = [cell for cell in cells if planned_steps(cell.recipe)]
    for cell in trained[1:]:
        steps, wanted = planned_steps(cell.recipe), planned_steps(trained[0].recipe)
        if steps != wanted:
            raise RecipeError(
                f"arm {cell.arm} takes {steps} optimizer steps and arm {trained[0].arm} {wanted}, "
                "and budget.axis is optimizer_steps",
                "Make train.cycles and the steps per cycle agree, or choose another budget.axis.",
            )


def _digest(benchmark: Benchmark, arms: Sequence[Arm], cells: Sequence[Cell]) -> str:
    recipes = {f"{cell.arm} {cell.seed}": cell.recipe.model_dump(mode="json") for cell in cells}
    document = {
        "recipes": recipes,
        "baseline": benchmark.baseline or arms[0].name,
        "budget": benchmark.budget.model_dump(mode="json"),
        "eval_split": benchmark.eval_split,
    }
    judged = {
        "comparisons": benchmark.comparisons,
        "statistics": benchmark.statistics.model_dump(mode="json", exclude_defaults=True),
    }
    document |= {key: value for key, value in judged.items() if value}
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()
