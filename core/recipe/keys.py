"""Every key that a recipe may have, and the nearest of them to one that it may not."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.recipe.execution import EXECUTION_KEYS
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime


def sections_of(annotation: Any) -> list[type[BaseModel]]:
    """Return the section classes in a type, looking through unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections_of(part)]


def named_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted name and field of every section and every key in it."""
    for name, field in model.model_fields.items():
        yield prefix + name, field
        for section in sections_of(field.annotation):
            yield from named_fields(section, f"{prefix}{name}.")


@cache
def recipe_keys() -> tuple[str, ...]:
    """Return the dotted identity keys that are not sections."""
    return tuple(key for key, field in dict(named_fields(Recipe)).items() if _is_leaf(field))


@cache
def submitted_keys() -> tuple[str, ...]:
    """Return every dotted key, not a section, that a submitted document may hold."""
    leaves = (key for key, field in fields().items() if _is_leaf(field))
    return (*leaves, *EXECUTION_KEYS)


def _is_leaf(field: FieldInfo) -> bool:
    return not sections_of(field.annotation)


@cache
def fields() -> dict[str, FieldInfo]:
    """Return the field behind every section and key, ``runtime.`` ones included."""
    return dict([*named_fields(Recipe), *named_fields(Runtime, "runtime.")])


def explain(key: str) -> str:
    """Return a key's bounds and the first sentence of its docstring, or nothing if unknown."""
    field = fields().get(key)
    if field is None:
        return ""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        f"{sign} {getattr(limit, name)}"
        for limit in field.metadata
        for name, sign in signs.items()
        if getattr(limit, name, None) is not None
    ]
    meaning = " ".join((field.description or "").split()).split(". ")[0].rstrip(".")
    return f"{meaning}{' (' + ', '.join(limits) + ')' if limits else ''}."


def is_section(key: str) -> bool:
    """Return whether some key lies below ``key``."""
    return any(known.startswith(key + ".") for known in submitted_keys())


def siblings(key: str) -> list[str]:
    """Return the last parts of the keys and sections that may stand beside ``key``."""
    prefix = key.rpartition(".")[0]
    depth = len(prefix) + 1 if prefix else 0
    inside = [known for known in submitted_keys() if known.startswith(prefix + ".") or not prefix]
    return list(dict.fromkeys(known[depth:].split(".")[0] for known in inside))


def nearest(key: str) -> list[str]:
    """Return the known keys that may have been meant.

    A neighbour with a similar name comes first, then the same name in other sections, then
    whatever reads alike as a whole.
    """
    prefix, _, name = key.rpartition(".")
    beside = get_close_matches(name, siblings(key), n=1)
    if beside:
        return [f"{prefix}.{beside[0]}" if prefix else beside[0]]
    moved = [known for known in submitted_keys() if known.rpartition(".")[2] == name]
    return moved or get_close_matches(key, submitted_keys(), n=1)
