"""Names, types and bounds: pydantic's verdict in the words of the submitted document."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from core.recipe.document import Document, KeyPath
from core.recipe.keys import explain, is_section, nearest, siblings
from core.recipe.problems import Problem

ModelT = TypeVar("ModelT", bound=BaseModel)

_TYPES = {
    "int_type": ("must be a whole number", "Write it without quotes or decimal point."),
    "float_type": ("must be a number", "Write it without quotes."),
    "bool_type": ("must be true or false", "Write true or false."),
    "string_type": ("must be text", "Put it in quotes."),
    "model_type": ("must be a mapping of keys", "Indent its keys below it."),
    "dict_type": ("must be a mapping of keys", "Indent its keys below it."),
    "tuple_type": ("must be a list", "Write it as [a, b]."),
    "path_type": ("must be a path", "Write it as text."),
}
_BOUNDS = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


def validate(
    model: type[ModelT], values: Mapping[str, Any], document: Document, prefix: KeyPath = ()
) -> tuple[ModelT | None, list[Problem]]:
    """Check ``values`` against a model.

    Args:
        model: ``Recipe`` or ``Runtime``.
        values: What was submitted for it.
        document: Where the values came from.
        prefix: Path of ``values`` in the document.

    Returns:
        The instance, or None, and the problems, at most one per key.
    """
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        found: dict[KeyPath, Problem] = {}
        for detail in error.errors(include_url=False):
            for each in _problems(detail, document, prefix):
                found.setdefault(each.path, each)
        return None, list(found.values())


def _problems(detail: ErrorDetails, document: Document, prefix: KeyPath) -> list[Problem]:
    path = _submitted_path((*prefix, *map(str, detail["loc"])), detail["type"], document)
    if detail["type"] == "extra_forbidden":
        return [_unknown(each) for each in _unknown_keys(path, document)]
    if detail["type"] == "missing":
        key = ".".join(path)
        return [Problem(path, "is required and missing", f"Add it. {explain(key)}".strip())]
    if detail["type"] == "union_tag_invalid":
        path = (*path, "kind")
    return [Problem(path, *_wrong_value(detail, explain(".".join(path))))]


def _submitted_path(location: KeyPath, kind: str, document: Document) -> KeyPath:
    """Drop what pydantic adds to a location: names of union members, types, list indices."""
    path: KeyPath = ()
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if document.has((*path, part)) or (last and kind == "missing"):
            path = (*path, part)
    return path


def _unknown_keys(path: KeyPath, document: Document) -> list[KeyPath]:
    """Return the unknown keys below a section that consists of execution keys alone."""
    value = document.get(path)
    if isinstance(value, dict) and value and is_section(".".join(path)):
        return [(*path, name) for name in value]
    return [path]


def _unknown(path: KeyPath) -> Problem:
    key = ".".join(path)
    if is_section(key):
        return Problem(path, *_TYPES["dict_type"])
    meant = nearest(key)
    if meant:
        return Problem(path, "there is no such key", f"Did you mean {' or '.join(meant)}?")
    known = ", ".join(siblings(key))
    return Problem(path, "there is no such key", f"Known here: {known}.")


def _wrong_value(detail: ErrorDetails, meaning: str) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _TYPES:
        what, hint = _TYPES[kind]
        return what, f"{hint} {meaning}".strip()
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{words} {context[name]}", meaning
    if kind == "literal_error":
        return "is not one of the choices", _choices(detail["input"], context["expected"])
    if kind == "union_tag_invalid":
        return "is not one of the choices", _choices(context["tag"], context["expected_tags"])
    return f"is refused: {detail['msg']}", meaning or "Give another value."


def _choices(given: Any, allowed: str) -> str:
    names = [name.strip(" '") for name in allowed.replace(" or ", ", ").split(",")]
    close = get_close_matches(str(given), names, n=1)
    choices = f"Choose one of {', '.join(names)}."
    return f"Did you mean {close[0]}? {choices}" if close else choices
