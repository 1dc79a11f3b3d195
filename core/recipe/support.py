"""Keys whose feature would change numbers and is not built yet. Building it removes its row."""

from collections.abc import Iterator
from dataclasses import dataclass

from core.recipe.document import Document
from core.recipe.problems import Problem


@dataclass(frozen=True)
class Unbuilt:
    """A key with the values that are refused; no values means anything but null."""

    key: str
    values: tuple[object, ...] | None = None
    instead: str = "Leave it out."


UNBUILT: tuple[Unbuilt, ...] = (
    Unbuilt("offline_kd.task_schedule_digest"),
    Unbuilt("alignment"),
)


def unbuilt(document: Document) -> Iterator[Problem]:
    """Yield a problem for every key of the document whose feature does not exist."""
    for row in UNBUILT:
        path = tuple(row.key.split("."))
        value = document.get(path)
        refused = value is not None if row.values is None else value in row.values
        if refused:
            yield Problem(path, "not built yet", row.instead)
