"""One builder per key, across threads and processes.

The lock is the kernel's ``flock`` on an open file: a killed holder frees it at once, and a crash
leaves nothing to break. Works on local and most network file systems; POSIX only.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.artifacts import filesystem

logger = logging.getLogger(__name__)

_held: set[int] = set()


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock of a file, waiting for whoever holds it now.

    Args:
        path: The lock file; created, and removed again when free. Its directory exists.
        what: What is being locked, for the log line of one who waits.

    Raises:
        StoreError: The lock file cannot be created.
    """
    descriptor = _acquire(path, what, wait=True)
    try:
        yield
    finally:
        _release(path, descriptor)


@contextmanager
def locked_if_free(path: Path, what: str) -> Iterator[bool]:
    """Hold the lock of a file if nobody else does.

    Yields:
        True where the lock is held, False where someone else has it.

    Raises:
        StoreError: The lock file cannot be created.
    """
    descriptor = _acquire(path, what, wait=False)
    try:
        yield descriptor is not None
    finally:
        _release(path, descriptor)


def _acquire(path: Path, what: str, *, wait: bool) -> int | None:
    while True:
        descriptor = _open(path)
        try:
            taken = _flock(path, descriptor, what, wait=wait)
            current = taken and _is_current(path, descriptor)
        except BaseException:  # Ctrl-C while waiting, too
            _close(descriptor)
            raise
        if current:
            return descriptor
        _close(descriptor)
        if not taken:
            return None
        # The last holder removed this file while we waited for it: take the new one.


def _open(path: Path) -> int:
    with filesystem.touching("lock", path):
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    _held.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)


def _flock(path: Path, descriptor: int, what: str, *, wait: bool) -> bool:
    with filesystem.touching("flock", path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                return False
            logger.info("another process is building %s: waiting for it", what)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True


def _is_current(path: Path, descriptor: int) -> bool:
    status = filesystem.status(path)
    return status is not None and status.st_ino == os.fstat(descriptor).st_ino


def _release(path: Path, descriptor: int | None) -> None:
    if descriptor not in _held:  # never taken, or this is a forked child
        return
    try:
        filesystem.remove_file(path)  # while still held, so that nobody can take a removed file
    finally:
        _close(descriptor)


def _drop_in_child() -> None:
    # A forked child shares the open file: it would keep the lock after its parent was killed.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_drop_in_child)
