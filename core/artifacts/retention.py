"""What a store may let go of: what no kept run needs, and states that can be computed again."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from core.artifacts import filesystem
from core.artifacts.catalogue import Catalogue
from core.artifacts.record import ArtifactRef, Record
from core.artifacts.store import Store
from core.errors import DamagedRecordError

LARGE = ".safetensors"
"""What is shed of a state: tensors. Its numbers stay, and so does every page made from them."""

ORIGINS = ("cold_start", "adopt_student")
"""Steps whose state many runs start from, or a run that may outlive the one that it came from:
never shed."""

PROGRESS = ".progress"
"""Where a store keeps how far long builds are."""

NEWEST_STATES = 2
"""States at the end of a run that are kept whole."""


@dataclass(frozen=True)
class KeptRun:
    """A run that must stay: everything it shows, and its newest state."""

    name: str
    artifacts: tuple[ArtifactRef, ...]
    student: ArtifactRef | None
    unfinished_since_s: float | None = None
    """When a run began that did not come to its end, in seconds since the epoch. What it has made
    is not listed anywhere, so all that is younger stays."""


@dataclass(frozen=True)
class Removal:
    """Files of one artifact, or of one working area, that would go."""

    where: str
    """Relative to the store's root."""
    action: Literal["shed", "prune", "sweep"]
    """Large files, all files but the record, or leftovers of the store itself."""
    size: int
    """Bytes."""
    ref: ArtifactRef | None = None
    files: tuple[str, ...] = ()


@dataclass
class Retention:
    """What would go, and what stays."""

    removals: list[Removal] = field(default_factory=list)
    kept: int = 0
    """Artifacts that a kept run needs."""
    young: int = 0
    """Artifacts that no run needs, and that are too new to go: an unfinished run may."""

    def freed(self, action: str | None = None) -> int:
        """Return the bytes of all removals, or of one kind."""
        return sum(one.size for one in self.removals if action in (None, one.action))


def plan_retention(
    root: Path, runs: Sequence[KeptRun], *, min_age_s: float, now_s: float | None = None
) -> Retention:
    """Say what could be removed, without removing anything.

    What a kept run shows stays, with everything that it was computed from. Of its states the
    newest two, the evaluated ones and the cold start stay whole; the others lose their tensors,
    which are made again should something need them. Everything else loses its files and keeps its
    record.

    Args:
        root: The store's root.
        runs: Runs to keep.
        min_age_s: Age in seconds below which nothing is pruned.
        now_s: Present time, in seconds since the epoch.

    Raises:
        StoreError: The store cannot be read.
        StoreSchemaError: A newer version of this system wrote one of its records.
    """
    now = time.time() if now_s is None else now_s
    records = dict(_records(root))
    needed = _closure(records, (ref.address for run in runs for ref in _roots(run)))
    whole = {address for run in runs for address in _whole_states(run, records)}
    unfinished = [run.unfinished_since_s for run in runs if run.unfinished_since_s is not None]
    newest_to_go = min([now - min_age_s, *unfinished])
    found = Retention()
    for address, record in sorted(records.items()):
        if address in needed:
            found.kept += 1
            found.removals += _shed(root, record) if _may_shed(record, whole) else []
        elif _started_s(record) >= newest_to_go:
            found.young += 1
        else:
            found.removals += _prune(root, record)
    found.removals += [*_leftovers(root), *_abandoned(root, newest_to_go)]
    return found


def apply_retention(root: Path, plan: Retention) -> int:
    """Remove what a plan names; cut anywhere, the next plan names the rest.

    Returns:
        Bytes that were freed.

    Raises:
        StoreError: Something cannot be removed.
    """
    store, freed = Store(root), 0
    for one in plan.removals:
        if one.ref is None:
            continue
        freed += store.shed(one.ref, one.files) if one.action == "shed" else store.prune(one.ref)
    for one in plan.removals:
        if one.where.startswith(f"{PROGRESS}/"):
            store.forget_progress(one.where.removeprefix(f"{PROGRESS}/"))
    store.sweep_staging()
    for entry in filesystem.entries(root / ".quarantine"):
        place = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            filesystem.remove_tree(place)
        else:
            filesystem.remove_file(place)
    return freed + plan.freed("sweep")


def _records(root: Path) -> Iterator[tuple[str, Record]]:
    catalogue = Catalogue(root.absolute())
    for kind in catalogue.kinds():
        for directory in catalogue.directories(kind):
            try:
                record = catalogue.record(directory)
            except DamagedRecordError:
                continue  # the next run that asks for it moves it aside
            if record is not None:
                yield record.ref.address, record


def _roots(run: KeptRun) -> list[ArtifactRef]:
    return [*run.artifacts, *([run.student] if run.student is not None else [])]


def _closure(records: Mapping[str, Record], roots: Iterable[str]) -> set[str]:
    """Return the addresses of some artifacts and of all that they were computed from."""
    waiting, found = list(roots), set[str]()
    while waiting:
        address = waiting.pop()
        if address in found or address not in records:
            continue
        found.add(address)
        waiting += [parent.address for parent in records[address].parents.values()]
    return found


def _whole_states(run: KeptRun, records: Mapping[str, Record]) -> Iterator[str]:
    """Yield the states of a run that keep their tensors."""
    newest = run.student
    for _ in range(NEWEST_STATES):
        if newest is None or newest.address not in records:
            break
        yield newest.address
        newest = records[newest.address].parents.get("student")
    shown = (records.get(ref.address) for ref in run.artifacts)
    for record in shown:
        if record is not None and record.kind == "evaluation":
            yield record.parents["student"].address


def _may_shed(record: Record, whole: set[str]) -> bool:
    is_state = record.kind == "student" and record.task not in ORIGINS
    kept = record.pruned or record.ref.address in whole or _holds_seconds(record)
    return is_state and not kept


def _holds_seconds(record: Record) -> bool:
    """Tell whether seconds are part of a state, which then never comes out the same again."""
    spec = record.payload.get("spec")
    budget = spec.get("budget") if isinstance(spec, dict) else None
    return isinstance(budget, dict) and budget.get("axis") == "wall_time"


def _shed(root: Path, record: Record) -> list[Removal]:
    names = tuple(name for name in record.files if name.endswith(LARGE))
    size = sum(_size(root / record.ref.address / name) for name in names)
    return [Removal(record.ref.address, "shed", size, record.ref, names)] if size else []


def _prune(root: Path, record: Record) -> list[Removal]:
    size = sum(_size(root / record.ref.address / name) for name in record.files)
    return [Removal(record.ref.address, "prune", size, record.ref)] if size else []


def _size(path: Path) -> int:
    status = filesystem.status(path)
    return 0 if status is None else status.st_size


def _started_s(record: Record) -> float:
    return datetime.fromisoformat(record.provenance.started).timestamp()


def _leftovers(root: Path) -> Iterator[Removal]:
    for entry in filesystem.entries(root / ".quarantine"):
        yield Removal(f".quarantine/{entry.name}", "sweep", _tree_size(Path(entry.path)))


def _abandoned(root: Path, newest_to_go: float) -> Iterator[Removal]:
    """Yield how far fits were that nobody went on with, as old as what may be pruned."""
    for entry in filesystem.entries(root / PROGRESS):
        if entry.stat(follow_symlinks=False).st_mtime < newest_to_go:
            yield Removal(f"{PROGRESS}/{entry.name}", "sweep", _tree_size(Path(entry.path)))


def _tree_size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory; links are not followed."""
    total, waiting = 0, [path]
    while waiting:
        place = waiting.pop()
        if place.is_dir() and not place.is_symlink():
            waiting += [Path(entry.path) for entry in filesystem.entries(place)]
        else:
            total += _size(place)
    return total
