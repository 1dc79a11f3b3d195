"""``key=value`` from the command line, and the split into identity and execution."""

from collections.abc import Iterable

from core.errors import RecipeError
from core.recipe.document import Document
from core.recipe.execution import EXECUTION_KEYS, EXECUTION_SECTIONS
from core.recipe.syntax import parse_value


def move_execution_keys(document: Document) -> list[str]:
    """Move execution keys into section ``runtime`` and return the submitted names.

    A section of execution keys alone that was left empty disappears.

    Raises:
        RecipeError: A setting was given under both of its names.
    """
    moved = []
    for key, field in EXECUTION_KEYS.items():
        path = tuple(key.split("."))
        if document.has(path):
            document.move(path, ("runtime", *field.split(".")))
            moved.append(key)
    for section in EXECUTION_SECTIONS:
        if document.has((section,)) and not document.get((section,)):
            document.pop((section,))
    return moved


def apply_overrides(document: Document, overrides: Iterable[str]) -> list[str]:
    """Write ``key=value`` pairs into a document, the last of equal keys winning.

    Args:
        document: Already split by ``move_execution_keys``.
        overrides: Dotted keys with YAML scalars or lists, e.g. ``train.cycles=3``.

    Returns:
        The submitted names of execution keys among them.

    Raises:
        RecipeError: A pair has no key, no ``=``, or a value that is not a scalar or a list.
    """
    moved = []
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise RecipeError(f"override {text!r} is not key=value", "Write e.g. train.cycles=3.")
        place = f"override {text!r}"
        if key in EXECUTION_KEYS:
            moved.append(key)
        target = f"runtime.{EXECUTION_KEYS[key]}" if key in EXECUTION_KEYS else key
        document.set(tuple(target.split(".")), parse_value(value, place), place)
        document.rename(tuple(target.split(".")), key)
    return moved
