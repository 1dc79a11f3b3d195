"""Where artifacts are built: private directories that a crash leaves behind and a sweep removes."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from core.artifacts import contents, filesystem
from core.artifacts.record import RECORD_NAME, Record, dump_record
from core.errors import StoreError

logger = logging.getLogger(__name__)


class Staging:
    """The staging area of one store, ``<root>/.staging``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def fresh(self, slot: str) -> Iterator[Path]:
        """Lend an empty directory; what is still in it afterwards is removed.

        Args:
            slot: ``<kind>-<key>``; the caller holds its lock.

        Raises:
            StoreError: The directory cannot be created.
        """
        self.clear(slot)
        path = self._directory / f"{slot}-{os.getpid()}-{token_hex(4)}"
        filesystem.make_directory(path, 0o700)
        try:
            yield path
        finally:
            _discard(path)

    def clear(self, slot: str) -> None:
        """Remove what dead builders of a slot left. The caller holds its lock, so all are dead."""
        for entry in filesystem.entries(self._directory):
            if entry.name.startswith(f"{slot}-"):
                _discard(Path(entry.path))

    def slots(self) -> list[str]:
        """List the slots that have a directory here, alive or dead."""
        names = (entry.name for entry in filesystem.entries(self._directory))
        return sorted({name.rsplit("-", 2)[0] for name in names})


def settle(directory: Path) -> list[str]:
    """Wait until the files that a builder wrote are on the disk.

    Returns:
        Their relative paths, sorted.

    Raises:
        StoreError: There are none, one is not publishable, or the disk failed.
    """
    files, _ = contents.list_contents(directory)
    if not files or filesystem.status(directory / RECORD_NAME) is not None:
        raise StoreError(
            f"{directory}: the builder wrote no file, or a {RECORD_NAME} of its own",
            f"Write at least one file, and leave {RECORD_NAME} to the store.",
        )
    for name in files:
        filesystem.sync_file(directory / name)
    return files


def seal(directory: Path, record: Record) -> None:
    """Write the record as the last file, and wait until all entries are on the disk.

    Raises:
        StoreError: The disk failed or is full; the directory must be thrown away.
    """
    _, directories = contents.list_contents(directory)
    path = directory / RECORD_NAME
    filesystem.write_file(path, [dump_record(record)])
    filesystem.sync_file(path)
    for inner in directories:
        filesystem.sync_directory(inner)


def _discard(path: Path) -> None:
    try:
        filesystem.remove_tree(path)
    except StoreError as error:
        # The failure that led here is the one to report; a later sweep gets what is left.
        logger.warning("left behind in staging: %s", error)
