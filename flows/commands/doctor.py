"""``opd doctor``: what this machine can run, what is unwell, and what to do about each of it."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from core.artifacts import filesystem
from core.artifacts.locking import locked_if_free
from core.errors import OpdError
from core.recipe.runtime import Runtime
from core.runs.machine import describe_gpu
from core.runs.manifest import load_manifest
from core.runs.reading import status_of
from core.runs.registry import known_runs
from flows.server import daemons
from flows.server.settings import prefect_home
from flows.server.stack import StackStatus, status
from tasks.gpu import LOCK, cuda_is_present

State = Literal["ok", "note", "problem"]
LITTLE_BYTES = 2 << 30
"""Free space below which a run of a pretrained model may not end."""
GIB = 1 << 30
MOST_NAMED = 5


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    subject: str
    state: State
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}[self.state]
        remedy = f"\n         fix: {self.remedy}" if self.remedy else ""
        return f"{mark}  {self.subject}: {self.found}{remedy}"


@dataclass(frozen=True)
class Verdict:
    """What can be run here."""

    core_commands: bool
    """Plans, reports, inspection: everything that needs no torch."""
    cpu_training: bool
    gpu_training: bool
    qlora_4bit: bool
    """4-bit students; on a CPU too, slowly."""


@dataclass(frozen=True)
class Diagnosis:
    """All checks, and what follows from them."""

    verdict: Verdict
    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        """Tell whether nothing needs a remedy before a run."""
        return all(check.state != "problem" for check in self.checks)

    def as_document(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        return {
            "verdict": asdict(self.verdict),
            "is_well": self.is_well,
            "checks": [asdict(check) for check in self.checks],
        }


def diagnose(store: Path | None = None, home: Path | None = None) -> Diagnosis:
    """Look at software, machine, server and store; nothing is changed or started.

    Args:
        store: Root of the store; that of recipes where None.
        home: Directory of the server; that of `opd up` where None.
    """
    root = store or Runtime().store
    verdict = _verdict()
    checks = [
        *_software(verdict),
        *_machine(root),
        *_stack(status(home), (home or prefect_home()).absolute()),
        *_slot(LOCK),
        *_store(root),
    ]
    return Diagnosis(verdict, tuple(checks))


def diagnosis_lines(found: Diagnosis) -> list[str]:
    """Return the lines of ``opd doctor``."""
    can = [name.replace("_", " ") for name, able in asdict(found.verdict).items() if able]
    cannot = [name.replace("_", " ") for name, able in asdict(found.verdict).items() if not able]
    lines = [str(check) for check in found.checks]
    lines.append(f"this machine can run: {', '.join(can)}")
    return [*lines, *([f"it cannot run: {', '.join(cannot)}"] if cannot else [])]


def _verdict() -> Verdict:
    trains = all(find_spec(name) is not None for name in ("torch", "transformers", "peft"))
    return Verdict(
        core_commands=True,
        cpu_training=trains,
        gpu_training=trains and cuda_is_present(),
        qlora_4bit=trains and find_spec("bitsandbytes") is not None,
    )


def _software(verdict: Verdict) -> Iterator[Check]:
    yield Check("python", "ok", sys.version.split()[0])
    if not verdict.cpu_training:
        yield Check(
            "training",
            "note",
            "torch, transformers or peft is not installed: this machine can plan and report only",
            "pip install 'opdflow[train]'",
        )
    if verdict.cpu_training and not verdict.qlora_4bit:
        yield Check(
            "quantisation", "note", "bitsandbytes is not installed", "pip install 'opdflow[cuda]'"
        )


def _machine(root: Path) -> Iterator[Check]:
    yield Check("processors", "ok", f"{os.cpu_count()} cores")
    yield _gpu()
    place = next(path for path in (root, *root.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    what = f"{free / GIB:.1f} GiB free for {root}"
    if free < LITTLE_BYTES:
        yield Check("disk", "problem", what, "Run `opd gc`, or set runtime.store to a larger disk.")
    else:
        yield Check("disk", "ok", what)
    if not os.access(place, os.W_OK):
        yield Check(
            "disk", "problem", f"{place} cannot be written", "Set runtime.store to another place."
        )


def _gpu() -> Check:
    found = describe_gpu()
    if not found["available"]:
        return Check("gpu", "note", "the driver lists none: runs use the CPU")
    named = f"{', '.join(found['names'])}, driver {found['driver_version'] or 'unknown'}"
    if cuda_is_present():
        return Check("gpu", "ok", named)
    return Check(
        "gpu",
        "problem",
        f"{named}, but torch cannot use it",
        "Install a CUDA build of torch, and leave CUDA_VISIBLE_DEVICES alone.",
    )


def _stack(found: StackStatus, home: Path) -> Iterator[Check]:
    running = [pool for pool, pid in found.workers.items() if pid]
    if found.api is None and not running:
        yield Check("server", "ok", "not running: `opd run` brings its own")
    elif found.complete:
        yield Check("server", "ok", f"{found.api}, workers {', '.join(running)}")
    else:
        missing = [pool for pool, pid in found.workers.items() if not pid]
        gone = ["the server"] if found.api is None else []
        what = f"{' and '.join([*gone, *(f'worker {pool}' for pool in missing)])} not running"
        yield Check("server", "problem", what, "Run `opd up` again.")
    if found.api is None and not running and (strays := daemons.strays(home / "run")):
        shown = ", ".join(map(str, strays[:MOST_NAMED]))
        yield Check(
            "server", "problem", f"processes of a dead stack are left: {shown}", "Run `opd down`."
        )


def _slot(lock: Path) -> Iterator[Check]:
    """Say whether someone computes on the GPU; the kernel frees the lock of the dead."""
    if not lock.exists():
        return
    try:
        with locked_if_free(lock, "the GPU slot") as free:
            if not free:
                yield Check("gpu slot", "note", "taken: a step computes on the GPU right now")
    except OpdError as error:
        yield Check("gpu slot", "note", error.message, error.hint)


def _store(root: Path) -> Iterator[Check]:
    if filesystem.status(root, follow=True) is None:
        yield Check("store", "ok", f"{root} is made by the first run")
        return
    for subject, look in (("store", _leftovers), ("runs", _runs)):
        try:
            yield from look(root)
        except OpdError as error:
            yield Check(subject, "problem", error.message, error.hint)


def _leftovers(root: Path) -> Iterator[Check]:
    """Name what killed builders left: staging directories and lock files that nobody holds."""
    staged = [entry.name for entry in filesystem.entries(root / ".staging")]
    dead = [lock for lock in _locks(root) if _is_free(lock)]
    aside = filesystem.entries(root / ".quarantine")
    if staged:
        what = f"{len(staged)} unfinished artifacts in .staging"
        yield Check("store", "note", what, "`opd gc --apply` removes those whose builder is dead.")
    if dead:
        yield Check(
            "store", "note", f"{len(dead)} locks of dead processes", "None needed: they are free."
        )
    if aside:
        what = f"{len(aside)} damaged or superseded artifacts in .quarantine"
        yield Check("store", "note", what, "`opd gc --apply` removes them.")
    if not (staged or aside):
        yield Check("store", "ok", f"{root}: nothing is left over")


def _locks(root: Path) -> list[Path]:
    return [Path(entry.path) for entry in filesystem.entries(root / ".locks")]


def _is_free(lock: Path) -> bool:
    with locked_if_free(lock, lock.name) as free:
        return free


def _runs(root: Path) -> Iterator[Check]:
    for directory in known_runs(root):
        try:
            state = status_of(directory, load_manifest(directory))
        except OpdError as error:
            yield Check("run", "problem", error.message, error.hint)
            continue
        if state in ("interrupted", "failed"):
            yield Check(
                "run", "note", f"{directory} {state}", "Its command again goes on where it stopped."
            )
        elif state == "running":
            yield Check("run", "note", f"{directory} is being computed")
