"""Goes over a whole store: every byte, every link between artifacts, everything that is foreign."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from core.artifacts import filesystem
from core.artifacts.catalogue import Catalogue
from core.artifacts.record import ArtifactRef, Record
from core.artifacts.store import Store
from core.errors import DamagedRecordError, StoreError, StoreSchemaError

REBUILD = "Run the recipe again: it is moved aside and rebuilt."
FOREIGN = "Remove it: no part of this system put it there."


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    where: str
    """Path relative to the root."""
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass
class StoreAudit:
    """What a check went over, and what it found."""

    artifacts: int = 0
    pruned: int = 0
    """Artifacts of which only the record is left."""
    files: int = 0
    size: int = 0
    """Bytes that were hashed."""
    findings: list[Finding] = field(default_factory=list)


def verify_store(root: Path) -> StoreAudit:
    """Hash every file of a store again, and follow every link between its artifacts.

    Nothing is changed, and no link of the file system is followed.

    Args:
        root: The store's root.

    Raises:
        StoreError: There is no store, it cannot be read, or it is another directory.
    """
    if filesystem.status(root, follow=True) is None:
        raise StoreError(
            f"{root}: there is no store", "Give a run directory or the root of a store."
        )
    audit = StoreAudit()
    store, catalogue = Store(root), Catalogue(root.absolute())
    known: dict[str, Record] = {}
    for directory, name in _directories(root.absolute(), audit):
        record = _record(catalogue, directory, name, audit)
        if record is not None:
            known[name] = record
            _check_files(store, record, audit)
    if not known and filesystem.status(root / ".locks") is None:
        raise StoreError(
            f"{root} holds no artifact: it is neither a store nor a run directory",
            "Give the root of a store, such as .opd/store, or a directory that `opd run` printed.",
        )
    for name, record in known.items():
        audit.findings += _broken_links(name, record, known)
    return audit


def verify_artifacts(root: Path, refs: list[ArtifactRef]) -> StoreAudit:
    """Hash the files of some artifacts again.

    Raises:
        StoreError: The store cannot be read.
    """
    audit, store = StoreAudit(), Store(root)
    for ref in {ref.address: ref for ref in refs}.values():
        problems = store.verify(ref, deep=True)
        record = store.record(ref) if not problems else None
        audit.artifacts += 1
        audit.findings += [_as_finding(problem, ref.address) for problem in problems]
        if record is not None:
            audit.files += len(record.files)
            audit.size += sum(entry.size for entry in record.files.values())
    return audit


def _directories(root: Path, audit: StoreAudit) -> Iterator[tuple[Path, str]]:
    """Yield the places of artifacts; what cannot be one is a finding."""
    for kind in filesystem.entries(root):
        if kind.name.startswith("."):
            continue
        if not kind.is_dir(follow_symlinks=False):
            audit.findings.append(Finding(kind.name, "a link, or no directory", FOREIGN))
            continue
        for entry in filesystem.entries(Path(kind.path)):
            name = f"{kind.name}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path), name
            else:
                audit.findings.append(Finding(name, "a link, or no directory", FOREIGN))


def _record(catalogue: Catalogue, directory: Path, name: str, audit: StoreAudit) -> Record | None:
    try:
        record = catalogue.record(directory)
    except (DamagedRecordError, StoreSchemaError) as error:
        what = error.message.removeprefix(f"{directory}/")
        audit.findings.append(Finding(name, what, error.hint))
        return None
    if record is None:
        audit.findings.append(Finding(name, "has no record, so it does not exist", FOREIGN))
    return record


def _check_files(store: Store, record: Record, audit: StoreAudit) -> None:
    audit.artifacts += 1
    if record.pruned:
        audit.pruned += 1
        return
    try:
        problems = store.verify(record.ref, deep=True, whole=False)
    except StoreError as error:  # something in the directory is neither a file nor a directory
        problems = [error.message]
    audit.findings += [_as_finding(problem, record.ref.address) for problem in problems]
    there = [entry for name, entry in record.files.items() if name not in record.shed]
    audit.files += len(there)
    audit.size += sum(entry.size for entry in there)


def _as_finding(problem: str, address: str) -> Finding:
    where, _, what = problem.partition(": ")
    if not what:
        return Finding(address, problem, REBUILD)
    return Finding(where, what, FOREIGN if what == "not in the record" else REBUILD)


def _broken_links(name: str, record: Record, known: dict[str, Record]) -> Iterator[Finding]:
    for role, parent in record.parents.items():
        there = known.get(parent.address)
        if there is None:
            yield Finding(name, f"its {role}, {parent.address}, is not in the store", REBUILD)
        elif there.digest != parent.digest:
            yield Finding(name, f"its {role}, {parent.address}, holds other bytes now", REBUILD)
