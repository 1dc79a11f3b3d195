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
from core.recipe.benchmark_labels import BUDGET_KEYS, all_arms, check_labels
from core.recipe.loading import Loaded, load, load_text
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schedule import steps_per_cycle
from core.recipe.steps import split_spec
from core.recipe.sweep import assignments, leaves
from core.recipe.syntax import write_document

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
    arms = all_arms(benchmark)
    check_labels(benchmark, arms)
    common = {seed: _load(benchmark, seed) for seed in benchmark.seeds}
    cells = tuple(
        _cell(benchmark, arm, seed, common[seed]) for seed in benchmark.seeds for arm in arms
    )
    for cell in cells:
        _check_differences(benchmark, cell, common[cell.seed])
        _check_start(cell)
        _check_measured(cell, common[cell.seed].recipe)
        _check_budget(benchmark, cell)
    if benchmark.budget.axis == "optimizer_steps":
        _check_steps(cells)
    return Grid(benchmark, arms, cells, common, _digest(benchmark, arms, cells))


def planned_steps(recipe: Recipe) -> int:
    """Return the optimizer steps that a run takes after its cold start, unless it stops early."""
    return steps_per_cycle(recipe) * recipe.train.cycles


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


def _check_measured(cell: Cell, common: Recipe) -> None:
    """Every arm is measured, on the same tasks: equal names of tasks are not enough."""
    own = cell.recipe
    if not own.eval.enabled:
        raise RecipeError(
            f"arm {cell.arm}, seed {cell.seed}: eval.enabled is false, so nothing can be compared",
            "Leave eval.enabled out.",
        )
    if _tasks(own) != _tasks(common):
        raise RecipeError(
            f"arm {cell.arm}, seed {cell.seed}: is measured on other tasks than the common recipe",
            "Write environment.*, source.*, eval.tasks and eval.task_offset as common_overrides.",
        )


def _tasks(recipe: Recipe) -> tuple[Any, ...]:
    """Return what decides on which tasks a recipe is measured.

    Sizes of earlier splits count: a task whose prompt one of them has is passed over.
    """
    measured = recipe.eval
    own = recipe.source if recipe.environment is None else split_spec(recipe, measured.split)
    return own, measured.tasks, measured.task_offset


def _check_budget(benchmark: Benchmark, cell: Cell) -> None:
    """Nothing but the budget view ends an arm, and what it asks for can be spent."""
    for axis, key in BUDGET_KEYS.items():
        limit = getattr(cell.recipe.train, key.removeprefix("train."))
        if limit is not None and (axis, limit) != (benchmark.budget.axis, benchmark.budget.limit):
            raise RecipeError(
                f"arm {cell.arm}, seed {cell.seed}: {key} = {limit}: budget.axis is "
                f"{benchmark.budget.axis}, and this would end the arm elsewhere",
                f"Leave it out, or write budget: {{axis: {axis}, limit: {limit}}}.",
            )
    most = _most_tokens(cell.recipe)
    limit = benchmark.budget.limit
    if limit is not None and benchmark.budget.axis != "wall_time" and 0 < most < limit:
        raise RecipeError(
            f"budget.limit: {limit:.0f} tokens are more than arm {cell.arm} can spend: "
            f"at most {most} in {cell.recipe.train.cycles} cycles",
            "Raise train.cycles, which is an upper bound here, or lower budget.limit.",
        )


def _most_tokens(recipe: Recipe) -> int:
    """Return the tokens that no run of a recipe can pass after its cold start."""
    episodes = recipe.train.cycles * recipe.train.rollouts_per_cycle
    return episodes * recipe.rollout.max_total_tokens * max(recipe.rollout.max_turns, 1)


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
    # What is null is left out: a digest that was written down stays the same when recipes get
    # another key, whose default is null, and another default of a key that is there changes it.
    recipes = {
        f"{cell.arm} {cell.seed}": cell.recipe.model_dump(mode="json", exclude_none=True)
        for cell in cells
    }
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
