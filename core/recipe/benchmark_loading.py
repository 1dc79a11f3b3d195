"""From a benchmark's YAML and ``key=value`` overrides to a grid, or one clear refusal."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from core.errors import RecipeError
from core.recipe.benchmark import Arm, Benchmark, BudgetView
from core.recipe.benchmark_grid import Grid, make_grid
from core.recipe.benchmark_statistics import (
    Published,
    PublishedArm,
    PublishedDifference,
    Statistics,
)
from core.recipe.document import Document
from core.recipe.keys import fields, submitted_keys
from core.recipe.loading import describes_benchmark
from core.recipe.schema.section import Section
from core.recipe.syntax import parse_document, parse_value

COMMON = "common_overrides"

WORDS = {
    "tuple_type": "must be a list, e.g. [1, 2]",
    "list_type": "must be a list, e.g. [1, 2]",
    "dict_type": "must be a mapping of keys to values",
    "too_short": "has too few entries",
    "too_long": "has too many entries",
    "int_type": "must be a whole number",
    "string_pattern_mismatch": "must be letters, digits and _ . + = - (no spaces), at most 80",
}
"""Kind of a complaint of pydantic -> what it says to a person."""


def is_benchmark(path: str | Path) -> bool:
    """Return whether a YAML file has the keys of a benchmark, and not those of a recipe."""
    try:
        document = parse_document(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, RecipeError):
        return False  # the loader of recipes says what is wrong
    return describes_benchmark(document)


def load_benchmark(path: str | Path, overrides: Iterable[str] = ()) -> Grid:
    """Read a benchmark file and load every arm on every seed.

    Args:
        path: YAML file.
        overrides: ``key=value`` pairs. Keys of a benchmark (``seeds=[1,2]``) change it; any other
            (``train.cycles=3``, ``runtime.device=cpu``) is a common override of the recipes.

    Raises:
        RecipeError: With file, arm, key, value and what to do.
    """
    return make_grid(read_benchmark(path, overrides))


def read_benchmark(path: str | Path, overrides: Iterable[str] = ()) -> Benchmark:
    """Read a benchmark file without loading its recipes.

    Raises:
        RecipeError: A key is missing, unknown or of the wrong kind.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"{path}: no benchmark can be read there", "Give a file such as recipes/benchmarks/*."
        ) from error
    document = parse_document(text, str(path))
    if document.has(("models",)) and "base" not in document.values:
        raise RecipeError(
            f"{path}: is a recipe, and this takes a benchmark",
            f"Run `opd run {path}`, or name it as base of a benchmark.",
        )
    _override(document, overrides)
    base = document.values.get("base")
    if isinstance(base, str):
        document.values["base"] = str((path.parent / base).absolute())
    try:
        return Benchmark.model_validate(document.values)
    except ValidationError as error:
        raise _refusal(error, document) from error


def _override(document: Document, overrides: Iterable[str]) -> None:
    for text in overrides:
        key, equals, value = text.partition("=")
        place = f"override {text!r}"
        if not equals or not all(key.split(".")):
            raise RecipeError(f"{place} is not key=value", "Write e.g. seeds=[1,2].")
        parsed = parse_value(value, place)
        names = tuple(key.strip().split("."))
        if names[0] in Benchmark.model_fields:
            document.set(names, parsed, place)
            continue
        _check_common(names[0], place)
        common = document.values.setdefault(COMMON, {})
        common[key.strip()] = parsed


def _check_common(name: str, place: str) -> None:
    """Refuse what names neither a key of a benchmark nor a section of a recipe."""
    sections = {key.partition(".")[0] for key in (*fields(), *submitted_keys())}
    if name not in sections:
        names = [*Benchmark.model_fields, *sorted(sections)]
        close = get_close_matches(name, names, n=1)
        raise RecipeError(
            f"{place}: {name}: there is no such key",
            f"Did you mean {close[0]}?" if close else f"Known: {', '.join(names)}.",
        )


def _refusal(error: ValidationError, document: Document) -> RecipeError:
    """Return pydantic's first complaint in two lines."""
    detail = error.errors(include_url=False)[0]
    location = [str(part) for part in detail["loc"]]
    key = ".".join(part for part in location if part not in ("str", "dict[str,JsonValue]"))
    place = document.place(tuple(location[:1]))
    if detail["type"] == "extra_forbidden":
        close = get_close_matches(location[-1], _known(location), n=1)
        hint = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(_known(location))}."
        return RecipeError(f"{place}: {key}: there is no such key", hint)
    if detail["type"] == "missing":
        return RecipeError(f"{place}: {key}: is required and missing", "Add it.")
    what = WORDS.get(detail["type"], detail["msg"].removeprefix("Value error, "))
    return RecipeError(f"{place}: {key}: {what}", "Give another value.")


def _known(location: list[str]) -> list[str]:
    """Return the keys beside the last of a location."""
    inside: dict[tuple[str, ...], type[Section]] = {
        ("arms",): Arm,
        ("budget",): BudgetView,
        ("statistics",): Statistics,
        ("published",): Published,
        ("published", "arms"): PublishedArm,
        ("published", "comparisons"): PublishedDifference,
    }
    around = tuple(part for part in location[:-1] if not part.isdigit())
    return list(inside.get(around, Benchmark).model_fields)
