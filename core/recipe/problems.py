"""What is wrong with a recipe: one problem per key, and one error that names them all."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import RecipeError
from core.recipe.document import Document, KeyPath

MAX_SHOWN = 8
MAX_VALUE_CHARS = 60
_MISSING = object()


@dataclass(frozen=True)
class Problem:
    """One reason to refuse a recipe."""

    path: KeyPath
    """The key to change, as the document holds it."""
    what: str
    """What is wrong with it; other keys of a combination are named here."""
    hint: str
    """What to do."""


def problem(key: str, what: str, hint: str) -> Problem:
    """Return a problem of a dotted key."""
    return Problem(tuple(key.split(".")), what, hint)


def refuse(problems: Sequence[Problem], document: Document) -> RecipeError:
    """Return the error that names the first eight problems, each with its place and value."""
    shown = problems[:MAX_SHOWN]
    lines = [_line(each, document) for each in shown]
    if len(shown) == 1:
        return RecipeError(lines[0], shown[0].hint)
    lines = [f"{line}; {each.hint}" for line, each in zip(lines, shown, strict=True)]
    rest = len(problems) - len(shown)
    count = f"these {len(shown)} keys" + (f" ({rest} more follow)" if rest else "")
    return RecipeError("\n".join(lines), f"Correct {count} and run the command again.")


def _line(each: Problem, document: Document) -> str:
    value = document.get(each.path, _MISSING)
    shown = "" if value is _MISSING or isinstance(value, dict) else f" = {show(value)}"
    return f"{document.place(each.path)}: {document.label(each.path)}{shown}: {each.what}"


def show(value: Any) -> str:
    """Return a value as YAML would write it on one line, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"
