"""The store: content-addressed artifacts, published whole or not at all.

Layout under its root::

    <kind>/<name>-<key>/       files, and record.json, written last
    .staging/                  artifacts being built
    .progress/                 how far a long build is, until its artifact is published
    .locks/                    one file per key being built
    .stamps/                   which files were hashed (a memo, may be deleted)
    .quarantine/               damaged and superseded artifacts, until `opd gc`

It is the only truth: nothing else decides whether a result exists.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from core.artifacts import contents, filesystem
from core.artifacts.catalogue import Catalogue
from core.artifacts.code import CodeDigest
from core.artifacts.locking import locked, locked_if_free
from core.artifacts.publishing import Build, Publisher
from core.artifacts.record import RECORD_NAME, ArtifactRef, Record, dump_record
from core.artifacts.request import PublishRequest
from core.artifacts.staging import Staging
from core.artifacts.stamps import Stamps
from core.errors import DamagedRecordError, StoreError

logger = logging.getLogger(__name__)


class Store:
    """Artifacts under one root; any number of processes may use it at once.

    Args:
        root: Directory of the store; created (mode 0700) by the first publication.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()
        self._catalogue = Catalogue(self.root)
        self._stamps = Stamps(self.root / ".stamps")
        self._staging = Staging(self.root / ".staging")
        self._publisher = Publisher(self.root, self._catalogue, self._stamps, self._staging)

    def find(
        self, key: str, kind: str | None = None, *, code: CodeDigest | None = None
    ) -> ArtifactRef | None:
        """Look an artifact up; one that is pruned, incomplete or altered is a miss.

        Args:
            key: 16 hex digits.
            kind: Its kind; spares a look at the other kinds.
            code: Accept only what this code built (``--strict-code``).

        Raises:
            StoreSchemaError: A newer version of this system wrote the record.
            StoreError: The store cannot be read.
        """
        record = self._sound(key, kind, code)
        return None if record is None or record.shed else record.ref

    def recall(
        self, key: str, kind: str | None = None, *, code: CodeDigest | None = None
    ) -> ArtifactRef | None:
        """Look an artifact up that need not be whole: large files may have been shed.

        Its digest is known, which is all that the key of a child needs. Arguments and failures are
        those of :meth:`find`.
        """
        record = self._sound(key, kind, code)
        return None if record is None else record.ref

    def path(self, ref: ArtifactRef) -> Path:
        """Return the directory of an artifact."""
        return self.root / ref.address

    def record(self, ref: ArtifactRef) -> Record:
        """Read the record of an artifact; a pruned one still has it.

        Raises:
            StoreError: It has none, or it cannot be read.
        """
        record = self._catalogue.record(self.path(ref))
        if record is None:
            raise StoreError(
                f"{self.path(ref)}: no such artifact", "Run again: the artifact will be built."
            )
        return record

    def verify(self, ref: ArtifactRef, deep: bool = False, whole: bool = True) -> list[str]:
        """Check that an artifact holds exactly the bytes that its reference names.

        Args:
            ref: What is expected.
            deep: Hash every file; otherwise only files that were not hashed since they changed.
            whole: Files that were removed to save space are missing.

        Returns:
            What is wrong, one line each; empty where the artifact is sound.

        Raises:
            StoreSchemaError: A newer version of this system wrote the record.
        """
        record, problems = self._examine(self.path(ref), deep=deep)
        if record is None:
            return problems or [f"{ref.address}/{RECORD_NAME}: missing"]
        if whole and record.pruned:
            return [f"{ref.address}: pruned to save space"]
        if whole:
            problems += [f"{ref.address}/{name}: shed to save space" for name in record.shed]
        if record.digest != ref.digest:
            problems.append(f"{ref.address}: holds {record.digest}, not {ref.digest}")
        return problems + (self._strangers(record) if deep else [])

    def publish(self, request: PublishRequest, build: Build) -> ArtifactRef:
        """Return the artifact of a request, building it where no sound one exists.

        One builder at a time works on a key; who waited adopts what was published meanwhile. The
        artifact appears by one rename after all of it is on the disk, so whatever stops the
        builder leaves the whole artifact or none.

        Args:
            request: What to build.
            build: Writes the files. Not called on a hit.

        Raises:
            KeyEncodingError: The spec or a metric has no canonical text.
            StoreError: The disk is full, read-only or failed, or the files are not publishable.
        """
        request.check_address()
        self._publisher.prepare()
        slot = f"{request.kind}-{request.identity.key}"
        with locked(self._lock_file(slot), f"{request.kind}/{request.name}"):
            existing = self.find(request.identity.key, request.kind, code=request.required_code)
            return existing or self._publisher.build(slot, request, build)

    def progress(self, kind: str, key: str) -> Path:
        """Return where the builder of a key may keep how far it is; it may not exist."""
        return self._publisher.progress / f"{kind}-{key}"

    def siblings(self, kind: str, task: str | None = None) -> list[Record]:
        """Return the records of a kind, pruned ones included, to compare a miss with.

        Raises:
            StoreSchemaError: A newer version of this system wrote one of them.
        """
        found = (self._readable(path) for path in self._catalogue.directories(kind))
        return [r for r in found if r is not None and task in (None, r.task)]

    def prune(self, ref: ArtifactRef) -> int:
        """Remove the files of an artifact and keep its record.

        Returns:
            Bytes that were freed.

        Raises:
            StoreError: It does not exist, or its files cannot be removed.
        """
        directory, slot = self.path(ref), f"{ref.kind}-{ref.key}"
        record = self.record(ref).model_copy(update={"pruned": True})
        with locked(self._lock_file(slot), ref.address):
            # Marked before anything goes: cut here, it is a miss and pruning goes on next time.
            self._replace_record(slot, record)
            files, directories = contents.list_contents(directory)
            freed = sum((directory / name).lstat().st_size for name in files)
            for name in files:
                filesystem.remove_file(directory / name)
            for inner in directories[:-1]:
                filesystem.remove_tree(inner)
            self._stamps.forget(ref)
        return freed

    def shed(self, ref: ArtifactRef, names: Iterable[str]) -> int:
        """Remove large files of an artifact that can be made again.

        Returns:
            Bytes that were freed.

        Raises:
            StoreError: It does not exist or was pruned, or a file cannot be removed.
        """
        directory, slot = self.path(ref), f"{ref.kind}-{ref.key}"
        record = self.record(ref)
        going = sorted({*record.shed, *names} & record.files.keys())
        with locked(self._lock_file(slot), ref.address):
            # Marked before anything goes: cut here, shedding goes on next time.
            self._replace_record(slot, record.model_copy(update={"shed": tuple(going)}))
            present = [directory / name for name in going if (directory / name).exists()]
            freed = sum(path.lstat().st_size for path in present)
            for path in present:
                filesystem.remove_file(path)
            self._stamps.forget(ref)
        return freed

    def is_pruned(self, ref: ArtifactRef) -> bool:
        """Tell whether only the record of an artifact is left."""
        record = self._readable(self.path(ref))
        return record is not None and record.pruned

    def sweep_staging(self) -> int:
        """Remove what killed builders left behind; live builders hold their locks and are spared.

        Returns:
            How many keys were cleaned up.
        """
        swept = 0
        for slot in self._staging.slots():
            with locked_if_free(self._lock_file(slot), slot) as free:
                if free:
                    self._staging.clear(slot)
                    swept += 1
        return swept

    def forget_progress(self, slot: str) -> None:
        """Remove how far a build was, unless somebody is building it now.

        Raises:
            StoreError: It cannot be removed.
        """
        with locked_if_free(self._lock_file(slot), slot) as free:
            if free:
                filesystem.remove_tree(self._publisher.progress / slot)

    def _sound(self, key: str, kind: str | None, code: CodeDigest | None) -> Record | None:
        for directory in self._catalogue.locate(key, kind):
            record, problems = self._examine(directory)
            for problem in problems:
                logger.warning("not served: %s", problem)
            if record is None or record.pruned or problems:
                continue
            if code is None or (record.code is not None and record.code.digest == code.digest):
                return record
        return None

    def _replace_record(self, slot: str, record: Record) -> None:
        directory = self.path(record.ref)
        with self._staging.fresh(slot) as aside:
            filesystem.write_file(aside / RECORD_NAME, [dump_record(record)])
            filesystem.sync_file(aside / RECORD_NAME)
            filesystem.rename(aside / RECORD_NAME, directory / RECORD_NAME)
            filesystem.sync_directory(directory)

    def _lock_file(self, slot: str) -> Path:
        return self.root / ".locks" / f"{slot}.lock"

    def _readable(self, directory: Path) -> Record | None:
        try:
            return self._catalogue.record(directory)
        except DamagedRecordError as error:
            logger.warning("%s", error.message)
            return None

    def _examine(self, directory: Path, *, deep: bool = False) -> tuple[Record | None, list[str]]:
        try:
            record = self._catalogue.record(directory)
        except DamagedRecordError as error:
            return None, [error.message]
        if record is None or record.pruned:
            return record, []
        return record, self._stamps.problems(directory, record, deep=deep)

    def _strangers(self, record: Record) -> list[str]:
        files, _ = contents.list_contents(self.path(record.ref))
        extra = sorted(set(files) - set(record.files))
        return [f"{record.ref.address}/{name}: not in the record" for name in extra]
