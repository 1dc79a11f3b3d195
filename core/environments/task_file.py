"""Tasks of a split as JSON lines."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from core.environments.base import Task
from core.errors import InputError


class TaskFileError(InputError):
    """A file of tasks is missing or a row is no task."""


def write_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write one task per line, keys sorted."""
    lines = [
        json.dumps(asdict(task), sort_keys=True, ensure_ascii=False, allow_nan=False)
        for task in tasks
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def read_tasks(path: Path) -> list[Task]:
    """Read what ``write_tasks`` wrote.

    Raises:
        TaskFileError: The file cannot be read, or a row is no task; names file and row.
    """
    try:
        # Not splitlines(): a prompt may hold U+0085 or U+2028, which are no row ends.
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise TaskFileError(
            f"{path} cannot be read: {error.strerror}", "Run the recipe again to rebuild it."
        ) from error
    rows = enumerate(lines, start=1)
    return [_read_row(line, f"{path} row {number}") for number, line in rows if line]


def _read_row(line: str, place: str) -> Task:
    try:
        return Task(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise TaskFileError(
            f"{place} is no task: {error}", "Run the recipe again to rebuild it."
        ) from error
