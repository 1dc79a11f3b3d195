"""A grid over recipes: every combination of some keys' values, as ordinary overrides."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from core.errors import RecipeError
from core.recipe.loading import Loaded, load


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of everything in nested mappings."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def assignments(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ``key=value`` overrides that write nested mappings into a recipe."""
    return tuple(f"{key}={json.dumps(value)}" for key, value in leaves(values))


def grid(axes: Mapping[str, Sequence[Any]]) -> list[tuple[str, ...]]:
    """Return the overrides of every point; the last axis varies fastest.

    Args:
        axes: Dotted key -> values, e.g. ``{"run.seed": [0, 1], "loss.top_k": [4, 16]}``.

    Raises:
        RecipeError: An axis has no values.
    """
    return [assignments(point) for point in points(axes)]


def points(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values, by key; the last axis varies fastest.

    Raises:
        RecipeError: An axis has no values.
    """
    for key, values in axes.items():
        if not values:
            raise RecipeError(f"the sweep over {key} has no values", "Give at least one.")
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


def load_grid(
    path: str | Path, axes: Mapping[str, Sequence[Any]], overrides: Iterable[str] = ()
) -> list[Loaded]:
    """Load a recipe at every point of a grid; nothing is returned unless all are accepted.

    Args:
        path: YAML file.
        axes: As for ``grid``.
        overrides: Applied before the point's own.

    Raises:
        RecipeError: Naming the override, if a point is refused.
    """
    shared = tuple(overrides)
    return [load(path, (*shared, *point)) for point in grid(axes)]
