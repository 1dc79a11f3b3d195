"""How far a long supervised fit is, kept beside its artifact while that is being built.

A fit that is killed goes on from here and ends in the same bytes. What is kept is whole, of the
same code, device and versions, and agrees with its digests, or it is thrown away with a note: work
is repeated, a wrong state is never trusted. The store removes it once the artifact is published.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from core.artifacts import contents, filesystem
from core.artifacts.codec import read_json, read_jsonl, write_json, write_jsonl
from core.artifacts.key import canonical_json
from core.errors import OpdError, StoreError
from core.training.state import StudentState, load_state

logger = logging.getLogger(__name__)

ROWS, PLACE = "rows.jsonl", "place.json"


@dataclass(frozen=True)
class Place:
    """Where a fit is in its plan."""

    groups: int
    """Groups of traces that are done, those without a step included."""
    traces: int
    """Traces in them."""
    steps: int
    """Optimizer steps."""
    chunk_size: int
    """Positions projected at once; smaller than asked for where memory ran out."""
    spent: int = 0
    """Tokens of the run's budget."""
    seconds: float = 0.0
    """Wall seconds of the run's budget."""


@dataclass(frozen=True)
class Reached:
    """Everything that the next step of a fit depends on."""

    state: StudentState
    rows: list[dict[str, Any]]
    place: Place


class Progress:
    """The kept states of one fit; its caller holds the lock of the artifact's key.

    Args:
        directory: Where they are kept; created by the first one.
        stamp: Names code, device and versions; another stamp is another computation.
        every_s: Seconds between two of them.
    """

    def __init__(self, directory: Path, stamp: str, every_s: float) -> None:
        self._directory = directory
        self._stamp = stamp
        self._every_s = every_s
        self._kept = time.monotonic()

    def last(self) -> Reached | None:
        """Return the newest kept state, or None where there is none to trust.

        Raises:
            StoreError: What cannot be trusted cannot be removed.
        """
        numbers = self._numbers()
        if not numbers:
            return None
        try:
            reached = self._read(self._directory / str(max(numbers)))
        except (OpdError, KeyError, TypeError, ValueError) as error:
            logger.warning("the fit starts over, since its kept progress is unusable: %s", error)
            filesystem.remove_tree(self._directory)
            return None
        logger.info("the fit goes on after step %d", reached.place.steps)
        return reached

    def note(self, reached: Callable[[], Reached]) -> None:
        """Keep a state if the last one is old enough.

        Args:
            reached: Makes it; called only where it is kept.

        Raises:
            StoreError: The disk is full, read-only or failed.
        """
        if time.monotonic() - self._kept < self._every_s:
            return
        self._write(reached())
        self._kept = time.monotonic()

    def _write(self, reached: Reached) -> None:
        filesystem.make_directory(self._directory.parent, 0o700)
        filesystem.make_directory(self._directory, 0o700)
        older = [entry.name for entry in filesystem.entries(self._directory)]
        target = self._directory / str(reached.place.steps)
        aside = target.with_name(f"{target.name}.part")
        filesystem.remove_tree(aside)
        filesystem.make_directory(aside, 0o700)
        reached.state.save(aside)
        write_jsonl(aside / ROWS, reached.rows)
        document = {
            "stamp": self._stamp,
            "place": asdict(reached.place),
            "sha256": _digests(aside),
        }
        write_json(aside / PLACE, {**document, "digest": _digest(document)})
        for entry in filesystem.entries(aside):
            filesystem.sync_file(Path(entry.path))
        filesystem.sync_directory(aside)
        filesystem.remove_tree(target)
        filesystem.rename(aside, target)
        filesystem.sync_directory(self._directory)
        for name in set(older) - {target.name}:
            filesystem.remove_tree(self._directory / name)

    def _read(self, directory: Path) -> Reached:
        document = read_json(directory / PLACE)
        own = document.pop("digest")
        if document["stamp"] != self._stamp:
            raise StoreError(f"{directory} is of other code, versions or sizes", "It is removed.")
        if own != _digest(document) or document["sha256"] != _digests(directory):
            raise StoreError(f"{directory} is cut off or altered", "It is removed.")
        if set(document["place"]) != {field.name for field in fields(Place)}:
            raise StoreError(f"{directory / PLACE} names no place", "It is removed.")
        state = load_state(directory)
        return Reached(state, read_jsonl(directory / ROWS), Place(**document["place"]))

    def _numbers(self) -> list[int]:
        names = [entry.name for entry in filesystem.entries(self._directory)]
        return [int(name) for name in names if name.isascii() and name.isdigit()]


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()


def _digests(directory: Path) -> dict[str, str]:
    names, _ = contents.list_contents(directory)
    return {
        name: hashlib.sha256(filesystem.read_file(directory / name)).hexdigest()
        for name in names
        if name != PLACE
    }
