"""What the keys of a benchmark name: arms, seeds, pairs, keys of recipes. Nothing is loaded yet."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from core.errors import RecipeError
from core.recipe.benchmark import Arm, Benchmark
from core.recipe.benchmark_statistics import Published
from core.recipe.keys import fields, submitted_keys
from core.recipe.sweep import leaves, points

BUDGET_KEYS = {
    "selected_training_tokens": "train.max_selected_training_tokens",
    "generated_tokens": "train.max_generated_tokens",
    "wall_time": "train.max_wall_seconds",
}
"""Axis of a budget view -> key of the recipe that ends a run on it."""

SET_BY_BENCHMARK = {
    "run.seed": "Write seeds.",
    "eval.split": "Write eval_split.",
    "report.enabled": "Leave it out: the benchmark has a report of its own.",
    "run.name": "Write name, of the benchmark or of the arm.",
    "run.run_id": "Write name, of the benchmark or of the arm.",
    "runtime.run_name": "Write name, of the benchmark or of the arm.",
}
"""Keys of recipes that the grid itself sets -> what to write instead."""


def all_arms(benchmark: Benchmark) -> tuple[Arm, ...]:
    """Return the arms that were written, and those of the sweep.

    Raises:
        RecipeError: A point of the sweep has no label that could name an arm.
    """
    swept = points(benchmark.sweep) if benchmark.sweep else []
    return (*benchmark.arms, *(_swept_arm(one) for one in swept))


def _swept_arm(point: Mapping[str, Any]) -> Arm:
    words = [f"{key.rpartition('.')[2]}={_word(value)}" for key, value in point.items()]
    name = "+".join(words)
    try:
        return Arm(name=name, overrides=dict(point))
    except ValidationError:
        raise RecipeError(
            f"sweep: {json.dumps(point)}: {name} cannot be the name of an arm",
            "Write this point as an arm with a name of its own.",
        ) from None


def _word(value: Any) -> str:
    return str(value).replace(" ", "")


def check_labels(benchmark: Benchmark, arms: Sequence[Arm]) -> None:
    """Refuse labels that are there twice or nowhere, and keys that the benchmark itself sets.

    Raises:
        RecipeError: With the key and what to do.
    """
    if not arms:
        raise RecipeError("arms: is empty, and so is sweep", "Name at least one arm.")
    names = [arm.name for arm in arms]
    pairs = [" and ".join(sorted(pair)) for pair in benchmark.comparisons]
    for key, values in (("arms", names), ("seeds", benchmark.seeds), ("comparisons", pairs)):
        twice = [value for place, value in enumerate(values) if value in values[:place]]
        if twice:
            raise RecipeError(f"{key}: {twice[0]} is there twice", "Keep one of the two.")
    if benchmark.baseline not in (None, *names):
        raise RecipeError(
            f"baseline = {benchmark.baseline}: there is no such arm",
            f"Choose one of {', '.join(names)}.",
        )
    _check_pairs(benchmark, names)
    _check_limit(benchmark)
    _check_own_keys(benchmark, arms)
    for pattern in benchmark.allowed_differences:
        _check_pattern(pattern)


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


def _check_limit(benchmark: Benchmark) -> None:
    axis, limit = benchmark.budget.axis, benchmark.budget.limit
    limited = axis in BUDGET_KEYS
    if limited != (limit is not None):
        raise RecipeError(
            f"budget.limit: {'is missing' if limited else 'has no meaning'} where budget.axis is "
            f"{axis}",
            "Give tokens or seconds with an axis that counts them, and none with optimizer_steps.",
        )
    if limit is not None and axis != "wall_time" and not limit.is_integer():
        raise RecipeError(
            f"budget.limit = {limit}: tokens are counted whole", "Give a whole number of tokens."
        )


def _check_own_keys(benchmark: Benchmark, arms: Sequence[Arm]) -> None:
    common = [("common_overrides", key) for key, _ in leaves(benchmark.common_overrides)]
    for place, key in (*common, *_keys_of(arms)):
        if key in SET_BY_BENCHMARK:
            raise RecipeError(
                f"{place}: {key}: is set by the benchmark itself", SET_BY_BENCHMARK[key]
            )


def _keys_of(arms: Sequence[Arm]) -> Iterator[tuple[str, str]]:
    for arm in arms:
        yield from ((f"arm {arm.name}", key) for key, _ in leaves(arm.overrides))


def _check_pattern(pattern: str) -> None:
    """Refuse a pattern of differences that no key of any recipe has: it is a slip of the pen."""
    known = submitted_keys()
    section = pattern.removesuffix(".*")
    below = any(pattern.startswith(f"{key}.") for key in known)  # a key that holds a mapping
    if below or any(fnmatchcase(key, pattern) for key in known) or _may_be_null(section):
        return
    if section in fields():
        raise RecipeError(
            f"allowed_differences: {pattern}: is a section", f"Write {pattern}.* for all its keys."
        )
    names = [*known, *(f"{key}.*" for key in fields() if key not in known)]
    close = get_close_matches(pattern, names, n=1)
    raise RecipeError(
        f"allowed_differences: {pattern or '(nothing)'}: no recipe has such a key",
        f"Did you mean {close[0]}?" if close else "Write dotted keys, e.g. loss.* or train.cycles.",
    )


def _may_be_null(section: str) -> bool:
    return section in fields() and fields()[section].default is None
