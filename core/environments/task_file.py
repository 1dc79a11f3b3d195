"""Tasks of a split as JSON lines, written and read one at a time."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from core.environments.base import Task
from core.errors import InputError

_REBUILD = "Run the recipe again to rebuild it."


class TaskFileError(InputError):
    """A file of tasks is missing or a row is no task."""


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Write one task per line, keys sorted, and return how many."""
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for task in tasks:
            line = json.dumps(asdict(task), sort_keys=True, ensure_ascii=False, allow_nan=False)
            stream.write(f"{line}\n")
            count += 1
    return count


def read_tasks(path: Path) -> list[Task]:
    """Read what ``write_tasks`` wrote.

    Raises:
        TaskFileError: The file cannot be read, or a row is no task; names file and row.
    """
    return list(iterate_tasks(path))


def iterate_tasks(path: Path) -> Iterator[Task]:
    """Yield what ``write_tasks`` wrote, reading as it goes.

    Raises:
        TaskFileError: As ``read_tasks``, when the row is reached.
    """
    for number, line in enumerate(_lines(path), start=1):
        yield _read_row(line, f"{path} row {number}")


def count_tasks(path: Path) -> int:
    """Return the number of tasks without reading any.

    Raises:
        TaskFileError: The file cannot be read.
    """
    return sum(1 for _ in _lines(path))


def pick_tasks(path: Path, indices: Sequence[int]) -> list[Task]:
    """Return the tasks at some places of a file, in the order of ``indices``.

    Args:
        path: What ``write_tasks`` wrote.
        indices: Places from 0; one may occur twice. Other rows are passed over unread.

    Raises:
        TaskFileError: The file cannot be read, or a wanted row is no task or not there.
    """
    wanted, found = set(indices), {}
    for place, line in enumerate(_lines(path)):
        if place in wanted:
            found[place] = _read_row(line, f"{path} row {place + 1}")
    missing = wanted - found.keys()
    if missing:
        raise TaskFileError(f"{path} has no row {min(missing) + 1}", _REBUILD)
    return [found[index] for index in indices]


def _lines(path: Path) -> Iterator[str]:
    try:
        # Rows end at line feeds alone: a prompt may hold U+0085 or U+2028.
        with path.open(encoding="utf-8", newline="\n") as stream:
            yield from (line for line in stream if line.strip("\n"))
    except OSError as error:
        raise TaskFileError(f"{path} cannot be read: {error.strerror}", _REBUILD) from error


def _read_row(line: str, place: str) -> Task:
    try:
        return Task(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise TaskFileError(f"{place} is no task: {error}", _REBUILD) from error
