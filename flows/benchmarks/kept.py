"""What `opd gc` must leave of benchmarks: results of arms, and the runs that they were made from.

An arm that an equal run answered has no run directory, so its artifacts are named here alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.artifacts.codec import read_json
from core.artifacts.record import ArtifactRef
from core.artifacts.retention import KeptRun
from core.artifacts.store import Store
from core.errors import InputError, StoreError
from core.runs.registry import STATUS, known_benchmarks

ANSWERED = ("cached", "done")


def kept_benchmarks(places: list[Path], store: Path) -> list[KeptRun]:
    """Return a run for each answered arm and seed of the benchmarks that a store knows of.

    Args:
        places: Directories of more runs, and of more benchmarks.
        store: The store's root.

    Raises:
        InputError: What a benchmark needs cannot be read.
    """
    known = {directory.absolute(): began for directory, began in known_benchmarks(store)}
    for place in places:
        for path in place.glob(f"benchmark-*/{STATUS}"):
            known.setdefault(path.parent.absolute(), path.stat().st_mtime)
    return [run for one in sorted(known) for run in _kept(one, known[one], Store(store))]


def _kept(directory: Path, began_s: float, store: Store) -> Iterator[KeptRun]:
    try:
        cells: list[dict[str, Any]] = read_json(directory / STATUS)
        found = {
            f"{directory} {cell['arm']} {cell['seed']}": ArtifactRef.model_validate(cell["result"])
            for cell in cells
            if cell["state"] in ANSWERED
        }
    except (StoreError, ValidationError, KeyError, TypeError) as error:
        raise InputError(
            f"{directory / STATUS} cannot be read: what the benchmark needs is not known",
            "Run the benchmark again, or remove its directory.",
        ) from error
    tables = [table.ref for table in store.siblings("benchmark") if _is_of(table.parents, found)]
    # What it computed since it began is listed nowhere until all of it is answered.
    since_s = None if len(found) == len(cells) else began_s
    yield KeptRun(str(directory), tuple(tables), None, since_s)
    for name, result in found.items():
        yield _arm(name, result, store)


def _arm(name: str, result: ArtifactRef, store: Store) -> KeptRun:
    parents = _parents(result, store)
    states = [parents[role] for role in sorted(parents) if parents[role].kind == "student"]
    trained = [ref for role, ref in sorted(parents.items()) if role.startswith("student_")]
    last = trained[-1] if trained else states[-1] if states else None
    return KeptRun(name, (result, *parents.values()), last)


def _parents(result: ArtifactRef, store: Store) -> dict[str, ArtifactRef]:
    try:
        return store.record(result).parents
    except StoreError:  # removed by hand: nothing of it is left to keep
        return {}


def _is_of(parents: dict[str, ArtifactRef], found: dict[str, ArtifactRef]) -> bool:
    return bool(parents) and set(parents.values()) <= set(found.values())
