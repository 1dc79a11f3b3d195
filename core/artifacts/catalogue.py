"""Finds records by key without scanning the store twice.

Nothing is kept on disk: a directory is named ``<name>-<key>``, so one listing per kind answers
every lookup until that kind's directory changes.
"""

import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

from core.artifacts import contents, filesystem
from core.artifacts.key import key_of_payload
from core.artifacts.record import RECORD_NAME, Record, damaged, load_record
from core.artifacts.stamps import RACE_NS


@dataclass
class _Listing:
    """Directories of one kind by key, and until when the listing is known to be complete."""

    mtime_ns: int = -1
    listed_ns: int = 0
    by_key: dict[str, list[str]] = field(default_factory=dict)


class Catalogue:
    """The records of one store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listings: dict[str, _Listing] = {}
        self._records: dict[Path, tuple[tuple[int, int, int], Record]] = {}

    def kinds(self) -> list[str]:
        """List the kinds of artifact that the store has seen."""
        found = filesystem.entries(self._root)
        return [
            e.name for e in found if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
        ]

    def locate(self, key: str, kind: str | None = None) -> list[Path]:
        """Return the directories named after a key, sorted; normally one or none."""
        kinds = self.kinds() if kind is None else [kind]
        return [
            self._root / each / name
            for each in kinds
            for name in self._listing(each).by_key.get(key, [])
        ]

    def directories(self, kind: str) -> list[Path]:
        """Return all artifact directories of a kind, sorted."""
        found = self._listing(kind).by_key.values()
        return sorted(self._root / kind / name for names in found for name in names)

    def record(self, directory: Path) -> Record | None:
        """Read the record of a directory; None where it has none, so that it does not exist.

        Raises:
            StoreSchemaError: A newer version of this system wrote it.
            DamagedRecordError: It is cut off, altered, or belongs to another directory.
        """
        path = directory / RECORD_NAME
        status = filesystem.status(path)
        if status is None:
            return None
        strange = contents.strange_part(self._root, path)
        if strange is not None:
            raise damaged(path, strange)
        stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
        known = self._records.get(directory)
        if known is not None and known[0] == stamp:
            return known[1]
        read_ns = time.time_ns()
        record = load_record(path)
        _check(path, directory, record)
        if status.st_mtime_ns + RACE_NS < read_ns:
            self._records[directory] = (stamp, record)
        return record

    def _listing(self, kind: str) -> _Listing:
        directory = self._root / kind
        status = filesystem.status(directory)
        if status is None or not stat.S_ISDIR(status.st_mode):  # a link may lead anywhere
            return _Listing()
        known = self._listings.get(kind)
        # A change within one tick of the clock would not move the modification time.
        settled = status.st_mtime_ns + RACE_NS < (known.listed_ns if known else 0)
        if known is not None and settled and known.mtime_ns == status.st_mtime_ns:
            return known
        fresh = _Listing(status.st_mtime_ns, time.time_ns())
        for entry in filesystem.entries(directory):
            fresh.by_key.setdefault(entry.name.rpartition("-")[2], []).append(entry.name)
        self._listings[kind] = fresh
        return fresh


def _check(path: Path, directory: Path, record: Record) -> None:
    here = f"{directory.parent.name}/{directory.name}"
    faults = {
        f"belongs to {record.ref.address}": record.ref.address != here,
        "its payload was altered": key_of_payload(record.payload) != record.key,
        "its list of files was altered": contents.content_digest(record.files) != record.digest,
    }
    for what, present in faults.items():
        if present:
            raise damaged(path, what)
