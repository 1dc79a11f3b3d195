"""Which directories of runs and benchmarks lean on a store: one small file in ``.runs`` for each.

`opd gc` reads them: what such a directory shows must stay.
"""

import hashlib
import os
from pathlib import Path

from core.artifacts import filesystem
from core.artifacts.codec import read_json, write_json
from core.errors import StoreError
from core.runs.layout import MANIFEST

AREA = ".runs"
STATUS = "status.json"
"""The file of a benchmark's directory that says which artifact answers each arm and seed."""


def register_run(store: Path, directory: Path) -> None:
    """Note that the directory of a run or of a benchmark needs artifacts of a store.

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
    return [directory for directory, _ in _known(store) if (directory / MANIFEST).exists()]


def known_benchmarks(store: Path) -> list[tuple[Path, float]]:
    """Return the directories of benchmarks likewise, and when each first began, since the epoch.

    Raises:
        StoreError: An entry is damaged.
    """
    return [known for known in _known(store) if (known[0] / STATUS).exists()]


def _known(store: Path) -> list[tuple[Path, float]]:
    found = []
    for entry in filesystem.entries(store / AREA):
        try:
            directory = Path(read_json(Path(entry.path))["directory"])
        except (KeyError, TypeError) as error:
            raise StoreError(
                f"{entry.path}: names no run directory",
                "Run the recipes whose runs you want to keep again, and remove that file.",
            ) from error
        # Written once, when the directory was first used.
        found.append((directory, entry.stat(follow_symlinks=False).st_mtime))
    return sorted(found)
