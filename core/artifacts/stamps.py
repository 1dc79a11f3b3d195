"""A memo of which files were hashed, so that a lookup need not read gigabytes.

A stamp says: a file with this modification time, inode and size had this hash. It lives outside
the artifact, under ``.stamps``, and is only ever trusted as long as nothing of it changed; without
it the file is hashed again. Losing all stamps costs time, never correctness.
"""

import json
import logging
import time
from pathlib import Path
from typing import TypeAlias

from core.artifacts import contents, filesystem
from core.artifacts.record import ArtifactRef, Record
from core.errors import StoreError

logger = logging.getLogger(__name__)

Stamp: TypeAlias = "tuple[int, int, int, str]"
"""Modification time in ns, inode, size in bytes, hash."""

RACE_NS = 50_000_000
"""A file modified this shortly before it was hashed could be modified again without its coarse
modification time moving (10 ms ticks at worst), so such a stamp is not kept. Git does the same."""


class Stamps:
    """The stamps of one store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._memo: dict[str, dict[str, Stamp]] = {}

    def problems(self, directory: Path, record: Record, *, deep: bool) -> list[str]:
        """Compare the files of an artifact with its record.

        Args:
            directory: Where the artifact is.
            record: What its files must be.
            deep: Hash every file, whatever the stamps say.

        Returns:
            One line per file that is gone or altered; empty where all is sound.
        """
        address = record.ref.address
        known = {} if deep else self._load(address)
        fresh: dict[str, Stamp] = {}
        found: list[str] = []
        for name in (name for name in record.files if name not in record.shed):
            what = contents.strange_part(directory.parent.parent, directory / name)
            what = what or _check(directory / name, name, record, known, fresh)
            if what is not None:
                found.append(f"{address}/{name}: {what}")
        if fresh:
            self._save(address, {**known, **fresh})
        return found

    def note(self, directory: Path, record: Record, began_ns: int) -> None:
        """Remember the files of an artifact that was just hashed: large ones are not read twice.

        Args:
            directory: Where the artifact is now.
            record: Hashes of its files.
            began_ns: When hashing began, in ns since the epoch.
        """
        fresh: dict[str, Stamp] = {}
        for name, entry in record.files.items():
            status = filesystem.status(directory / name)
            if status is not None and status.st_mtime_ns + RACE_NS < began_ns:
                fresh[name] = (status.st_mtime_ns, status.st_ino, status.st_size, entry.sha256)
        if fresh:
            self._save(record.ref.address, fresh)

    def forget(self, ref: ArtifactRef) -> None:
        """Drop what is known about an artifact that is moved away."""
        self._memo.pop(ref.address, None)
        filesystem.remove_file(self._file(ref.address))

    def _file(self, address: str) -> Path:
        return self._directory / f"{address.replace('/', '--')}.json"

    def _load(self, address: str) -> dict[str, Stamp]:
        if address not in self._memo:
            self._memo[address] = _read(self._file(address))
        return self._memo[address]

    def _save(self, address: str, stamps: dict[str, Stamp]) -> None:
        self._memo[address] = stamps
        try:
            text = json.dumps(stamps, sort_keys=True)
            filesystem.replace_file(self._file(address), [text.encode()])
        except StoreError as error:
            # A read-only store is still a good store; the next process hashes again.
            logger.debug("no stamp kept: %s", error)


def _read(path: Path) -> dict[str, Stamp]:
    if filesystem.status(path) is None:
        return {}
    try:
        plain = json.loads(filesystem.read_file(path))
        return {str(name): _stamp(*values) for name, values in plain.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, StoreError) as error:
        logger.debug("stamp ignored: %s: %s", path, error)
        return {}


def _stamp(mtime_ns: int, inode: int, size: int, sha256: str) -> Stamp:
    return int(mtime_ns), int(inode), int(size), str(sha256)


def _check(
    path: Path, name: str, record: Record, known: dict[str, Stamp], fresh: dict[str, Stamp]
) -> str | None:
    wanted = record.files[name]
    status = filesystem.status(path)
    if status is None:
        return "missing"
    if status.st_size != wanted.size:
        return f"has {status.st_size} bytes instead of {wanted.size}"
    current = (status.st_mtime_ns, status.st_ino, status.st_size, wanted.sha256)
    if known.get(name) == current:
        return None
    started_ns = time.time_ns()
    if contents.hash_file(path).sha256 != wanted.sha256:
        return "content was altered"
    if status.st_mtime_ns + RACE_NS < started_ns:
        fresh[name] = current
    return None
