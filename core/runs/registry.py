"""Which run directories lean on a store: one small file per run in ``.runs``, for `opd gc`."""

import hashlib
import os
from pathlib import Path

from core.artifacts import filesystem
from core.artifacts.codec import read_json, write_json
from core.errors import StoreError
from core.runs.layout import MANIFEST

AREA = ".runs"


def register_run(store: Path, directory: Path) -> None:
    """Note that a run directory needs artifacts of a store.

    Raises:
        StoreError: The store cannot be written.
    """
    area = store / AREA
    filesystem.make_directories(area)
    place = os.fsencode(directory.absolute())
    path = area / f"{hashlib.sha256(place).hexdigest()[:16]}.json"
    if filesystem.status(path) is None:
        write_json(path, {"directory": str(directory.absolute())}, durable=True)


def known_runs(store: Path) -> list[Path]:
    """Return the run directories that a store knows of and that are still there, sorted.

    Raises:
        StoreError: An entry is damaged: a run that it named could lose what it needs.
    """
    found = []
    for entry in filesystem.entries(store / AREA):
        try:
            directory = Path(read_json(Path(entry.path))["directory"])
        except (KeyError, TypeError) as error:
            raise StoreError(
                f"{entry.path}: names no run directory",
                "Run the recipes whose runs you want to keep again, and remove that file.",
            ) from error
        if (directory / MANIFEST).exists():
            found.append(directory)
    return sorted(found)
