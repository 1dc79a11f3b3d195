"""One owner per run directory, who says who it is.

The lock is the kernel's, so it ends with its owner however that ends; what the file says is for
people. A second start of the same run is refused with the owner's facts, or waits and then finds
every step in the store.
"""

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from core.artifacts import filesystem
from core.artifacts.locking import locked, locked_if_free
from core.errors import RunOwnedError, StoreError

logger = logging.getLogger(__name__)


@contextmanager
def owned(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Own a run directory; nobody else does meanwhile.

    Args:
        directory: The run directory; it need not exist.
        wait: Wait for the present owner to end.

    Raises:
        RunOwnedError: Another process owns it, and ``wait`` is false.
        StoreError: The lock cannot be created.
    """
    lock = directory.absolute().parent / ".locks" / f"{directory.name}.lock"
    filesystem.make_directories(lock.parent)
    with locked_if_free(lock, directory.name) as free:
        if free:
            _introduce(lock)
            yield
            return
        if not wait:
            raise _refusal(directory, lock)
    logger.info("run %s belongs to %s: waiting for it", directory.name, owner_of(lock))
    with locked(lock, directory.name):
        _introduce(lock)
        yield


def owner_of(lock: Path) -> str:
    """Return what the owner of a lock says about itself."""
    try:
        facts = json.loads(filesystem.read_file(lock))
        return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
    except (StoreError, ValueError, KeyError, TypeError):  # gone, or about to be written
        return "another process"


def _introduce(lock: Path) -> None:
    """Say who owns the lock now; facts that are there already are those of a dead owner."""
    if lock.stat().st_size:
        logger.info("taking over from %s, which is dead", owner_of(lock))
    since = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    filesystem.write_file(lock, [json.dumps(facts).encode()])


def _refusal(directory: Path, lock: Path) -> RunOwnedError:
    return RunOwnedError(
        f"{directory} belongs to a run that goes on: {owner_of(lock)}",
        "Wait for it without runtime.wait_for_run=false, stop it, or take another directory with "
        "run.run_id=NAME.",
    )
