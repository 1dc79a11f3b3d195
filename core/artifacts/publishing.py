"""How an artifact comes to be: built aside, made durable, and put in place by one rename."""

import errno
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeAlias

from core.artifacts import contents, filesystem, provenance
from core.artifacts.catalogue import Catalogue
from core.artifacts.key import encode
from core.artifacts.record import ArtifactRef, Provenance, Record
from core.artifacts.request import PublishRequest
from core.artifacts.staging import Staging, seal, settle
from core.artifacts.stamps import Stamps
from core.errors import DamagedRecordError

logger = logging.getLogger(__name__)

Build: TypeAlias = "Callable[[Path], Mapping[str, Any] | None]"
"""Writes an artifact's files into an empty directory and returns its metrics."""

_DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_AREAS = (".staging", ".locks", ".stamps", ".quarantine")


class Publisher:
    """Builds the artifacts of one store; its caller holds the lock of the key.

    Args:
        root: The store's root.
        catalogue: Knows what is in place already.
        stamps: Remembers what was hashed.
        staging: Lends directories to build in.
    """

    def __init__(self, root: Path, catalogue: Catalogue, stamps: Stamps, staging: Staging) -> None:
        self._root = root
        self._catalogue = catalogue
        self._stamps = stamps
        self._staging = staging
        self.progress = root / ".progress"
        """Where builders keep how far they are, by slot."""

    def prepare(self) -> None:
        """Create the store's root, private to its owner, and its working areas.

        Raises:
            StoreError: They cannot be created.
        """
        for parent in reversed(self._root.parents):
            if filesystem.status(parent, follow=True) is None:
                filesystem.make_directory(parent)
        if filesystem.make_directory(self._root, 0o700):
            filesystem.sync_directory(self._root.parent)
        for area in _AREAS:
            filesystem.make_directory(self._root / area, 0o700)

    def build(self, slot: str, request: PublishRequest, build: Build) -> ArtifactRef:
        """Build an artifact and publish it, moving aside whatever has its place.

        Args:
            slot: ``<kind>-<key>``, whose lock is held.
            request: What to build.
            build: Writes the files.

        Raises:
            KeyEncodingError: A metric has no canonical text.
            StoreError: The disk is full, read-only or failed, or the files are not publishable.
        """
        started, clock = datetime.now(UTC), time.perf_counter()
        with self._staging.fresh(slot) as directory:
            metrics = _run(build, directory)
            origin = Provenance(
                seeds=dict(request.seeds),
                started=started.isoformat(timespec="milliseconds"),
                wall_time_s=time.perf_counter() - clock,
                **provenance.capture(),
            )
            names = settle(directory)
            hashed_ns = time.time_ns()
            record = _describe(directory, names, request, origin, metrics)
            seal(directory, record)
            for old in self._catalogue.locate(record.key, record.kind):
                self._set_aside(old, record)
            self._install(directory, record)
        filesystem.remove_tree(self.progress / slot)
        self._stamps.note(self._root / record.ref.address, record, hashed_ns)
        return record.ref

    def _install(self, directory: Path, record: Record) -> None:
        target = self._root / record.ref.address
        if filesystem.make_directory(target.parent, 0o700):
            filesystem.sync_directory(self._root)
        filesystem.rename(directory, target)
        filesystem.sync_directory(target.parent)

    def _set_aside(self, old: Path, record: Record) -> None:
        if _digest(self._catalogue, old) not in (None, record.digest):
            logger.warning("%s: rebuilt with other bytes than before", record.ref.address)
        self._stamps.forget(record.ref.model_copy(update={"name": old.name[:-17]}))
        aside = self._root / ".quarantine" / f"{record.kind}-{old.name}-{token_hex(4)}"
        filesystem.rename(old, aside)


def _digest(catalogue: Catalogue, directory: Path) -> str | None:
    try:
        record = catalogue.record(directory)
    except DamagedRecordError:
        return None  # it is being replaced for that very reason
    return None if record is None else record.digest


def _run(build: Build, directory: Path) -> dict[str, Any]:
    try:
        return encode(build(directory) or {}, "metrics")
    except OSError as error:
        path = Path(str(error.filename)) if error.filename is not None else directory
        # A builder may read files from elsewhere: what fails there is not the store's failure.
        # A full disk is noticed by write(), which names no file.
        if error.errno not in _DISK_FAILURES and directory not in path.parents:
            raise
        raise filesystem.store_error(error, "write", path) from error


def _describe(
    directory: Path,
    names: list[str],
    request: PublishRequest,
    origin: Provenance,
    metrics: dict[str, Any],
) -> Record:
    files = {name: contents.hash_file(directory / name) for name in names}
    return Record(
        kind=request.kind,
        name=request.name,
        task=request.task,
        version=request.version,
        key=request.identity.key,
        payload=request.identity.payload,
        parents=dict(request.parents),
        files=files,
        digest=contents.content_digest(files),
        code=request.code,
        numeric_class=request.measured_class(),
        provenance=origin,
        metrics=metrics,
        labels=dict(request.labels),
    )
