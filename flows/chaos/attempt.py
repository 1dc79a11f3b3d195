"""One disturbed attempt of ``opd chaos``: a process, what is done to it, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.artifacts.faults import FaultKind
from flows.server.settings import HOME_VARIABLE

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
FAULTS: tuple[FaultKind, ...] = ("kill", "power_cut", "full_disk", "failed_sync")
DISK_FAULTS = ("full_disk", "failed_sync")
"""Faults that a run answers with a refusal; any other refusal is of a damaged file."""
PATIENCE = 20.0
"""An attempt may take as many times the seconds of the undisturbed run, and a minute."""


@dataclass(frozen=True)
class Attempt:
    """One disturbed attempt and how it ended."""

    number: int
    disturbance: str
    step: str
    """Kind of the artifact that was being built when it ended; empty between two."""
    ended: str
    """``killed``, ``refused``, ``interrupted``, ``finished``, or what must not be: ``hung``,
    ``crashed``, ``other bytes``."""
    damage: str
    """What was done to a file afterwards."""
    detail: str
    seconds: float


@dataclass(frozen=True)
class Scene:
    """Where the runs happen."""

    recipe: Path
    overrides: tuple[str, ...]
    scratch: Path
    direct: bool

    def _words(self, store: str, fault: dict[str, Any]) -> list[str]:
        own = (f"runtime.store={self.scratch / store}", f"run.output_dir={self.scratch / 'runs'}")
        count = str(self.scratch / "operations")
        options = json.dumps({**fault, "direct": self.direct, "count": count})
        module = [sys.executable, "-m", "flows.chaos_child"]
        return [*module, options, str(self.recipe), *self.overrides, *own]

    def start(self, store: str, fault: dict[str, Any]) -> "subprocess.Popen[str]":
        """Start an attempt on a store of the scene, with a fault at its disk's seam."""
        return subprocess.Popen(
            self._words(store, fault),
            env={**os.environ, HOME_VARIABLE: str(self.scratch / "prefect")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def watch(
    process: "subprocess.Popen[str]", delay: float | None, kind: str, seconds: float
) -> tuple[bool, str]:
    """Wait for an attempt, and disturb it after ``delay``; say whether it hung, and its errors."""
    if delay is not None:
        try:
            return False, process.communicate(timeout=delay)[1]
        except subprocess.TimeoutExpired:
            process.send_signal(SIGNALS[kind])
    try:
        return False, process.communicate(timeout=60.0 + PATIENCE * seconds)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return True, process.communicate()[1]


def ending(code: int, errors: str, kind: str, scene: Scene) -> tuple[str, str]:
    """Return how an attempt ended, and what is to be said of it.

    Args:
        code: Exit code of its process.
        errors: What it wrote to stderr.
        kind: What disturbed it.
        scene: Where it ran; a refusal names a file there.
    """
    line = cause(errors.strip().splitlines() or [""])
    if code == 0:
        return "finished", ""
    if code < 0:
        return "killed", signal.Signals(-code).name
    if kind == "SIGINT" and code in (1, 130):
        return "interrupted", ""
    if line.startswith("error: ") and str(scene.scratch) in line:
        return "refused", line.removeprefix("error: ").replace(f"{scene.scratch}/", "")
    return "crashed", f"exit code {code}: {line}"


def step_of(store: Path) -> str:
    """Return the kind of the artifact that a killed attempt was building; empty between two."""
    building = sorted(store.glob(".staging/*"), key=lambda path: path.name)
    return building[-1].name.split("-")[0] if building else ""


def cause(lines: Sequence[str]) -> str:
    """Return the line that says why a process ended: its error, or the last one."""
    return next((line for line in lines if line.startswith("error: ")), lines[-1])
