"""What a disk and a machine may do to a process, at one chosen operation of the file-system seam.

``install`` replaces the announcement that every function of ``core.artifacts.filesystem`` makes
before it touches the disk. ``opd chaos`` does so in the processes that it starts; nobody else
does.
"""

import errno
import os
import random
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core.artifacts import filesystem

FaultKind = Literal["none", "kill", "power_cut", "full_disk", "failed_sync"]

CHANGES = (
    *("make_directory", "write_file", "sync_file", "sync_directory"),
    *("rename", "link", "remove_file", "remove_tree"),
)
"""Operations that are counted: those that change the disk or wait for it."""
NEED_SPACE = ("make_directory", "write_file", "link")
SYNCS = ("sync_file", "sync_directory")


@dataclass
class Fault:
    """One fault, and what the process has done to the disk before it.

    Attributes:
        kind: ``none`` only counts; ``kill`` ends the process at once; ``power_cut`` also drops what
            was not synced; on a ``full_disk`` nothing can be written from then on; ``failed_sync``
            fails once.
        at: Operation before which it happens, from 1; a failed sync happens at the first sync from
            there on.
        seed: Chooses what of the unsynced bytes a power cut leaves.
        seen: Operations so far.
    """

    kind: FaultKind
    at: int = 0
    seed: int = 0
    seen: int = 0
    _unsynced: set[Path] = field(default_factory=set)
    _unsettled: set[Path] = field(default_factory=set)

    def __call__(self, operation: str, path: Path) -> None:
        """Hear of an operation before it happens.

        Raises:
            OSError: The disk is full or failed.
        """
        if operation not in CHANGES:
            return
        self.seen += 1
        if self.kind != "none" and self.seen >= self.at:
            self._strike(operation)
        self._follow(operation, path)

    def _strike(self, operation: str) -> None:
        if self.kind == "full_disk" and operation in NEED_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.kind == "failed_sync" and operation in SYNCS:
            self.kind = "none"
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.kind == "power_cut":
            self._drop_unsynced()
        if self.kind in ("kill", "power_cut"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _follow(self, operation: str, path: Path) -> None:
        if operation == "write_file":
            self._unsynced.add(path)
        elif operation == "sync_file":
            self._unsynced.discard(path)
        elif operation == "sync_directory":
            self._unsettled = {one for one in self._unsettled if one.parent != path}
        elif operation == "rename":
            self._moved(path)

    def _moved(self, target: Path) -> None:
        self._unsettled.add(target)
        written = {
            one
            for one in self._unsynced
            if one.parent == target.parent and one.name.startswith(f".{target.name}.")
        }
        if written:
            self._unsynced = (self._unsynced - written) | {target}

    def _drop_unsynced(self) -> None:
        """Leave some first bytes of each unsynced file, and all or nothing of an unsettled move."""
        rng = random.Random(self.seed)
        for path in sorted(self._unsynced):
            if path.is_file():
                os.truncate(path, rng.randint(0, path.stat().st_size))
        for path in sorted(self._unsettled):
            if rng.random() < 0.5 and path.is_dir():
                shutil.rmtree(path)


def install(fault: Fault) -> None:
    """Let a fault hear of every operation of this process on the disk."""
    filesystem.announce = fault
