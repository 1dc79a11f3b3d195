"""Background processes that are found again: started, known to live or not, stopped.

A daemon holds an exclusive ``flock`` on its own file for as long as it lives, through a descriptor
it inherits without knowing. So a process number that was given to another program is never taken
for it, and whoever finds the lock free knows that the daemon is dead. Beside the lock, the file
says what was started, as JSON.
"""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MARK = "OPD_STACK"
"""Environment variable of all that belongs to a home, children of daemons included."""

TERM_S = 20.0
"""Seconds that a process may take to end when asked."""

POLL_S = 0.05


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file, waiting for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def start(
    path: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    facts: Mapping[str, Any],
    descriptors: Sequence[int] = (),
    directory: Path | None = None,
) -> dict[str, Any]:
    """Start a daemon in a session of its own.

    Args:
        path: Its file; ``<path>.log`` takes its output.
        command: Program and arguments.
        environment: Its whole environment.
        facts: What to remember about it.
        descriptors: Further open files to hand down.
        directory: Where it runs; the current directory where None.

    Returns:
        ``facts`` with its ``pid``, as the file says.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file, path.with_suffix(".log").open("ab") as log:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**environment, MARK: str(path.parent.absolute())},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(file.fileno(), *descriptors),
            start_new_session=True,
            preexec_fn=_hear_interrupts,  # noqa: PLW1509 - `opd up` has one thread
        )
        told = {**facts, "pid": process.pid}
        file.truncate(0)
        file.write(json.dumps(told))
    return told


def read(path: Path) -> dict[str, Any] | None:
    """Return what is known of a living daemon; None where it is dead or never lived."""
    try:
        with path.open() as file:
            if not _is_held(file.fileno()):
                return None
            return json.load(file)
    except (FileNotFoundError, json.JSONDecodeError):  # not started, or this very moment
        return None


def stop(path: Path) -> None:
    """Stop a daemon with its process group: ask, wait, kill."""
    known = read(path)
    if known is not None:
        _end(lambda: [-known["pid"]] if read(path) else [])
        with suppress(ProcessLookupError):
            os.killpg(known["pid"], signal.SIGKILL)  # what it left of its group
    path.unlink(missing_ok=True)


def stop_strays(directory: Path, spared: int | None = None) -> int:
    """Stop what belongs to a directory of daemons without being one: their children, or orphans.

    Found by the environment that they inherited, where the system shows it (``/proc``).

    Args:
        directory: Where the daemons' files are.
        spared: Process number of a daemon that must go on.

    Returns:
        Number of processes found.
    """

    def find() -> list[int]:
        return [pid for pid in strays(directory) if pid != spared]

    found = find()
    _end(find)
    return len(found)


def strays(directory: Path) -> list[int]:
    """List the processes that belong to a directory of daemons, the daemons included."""
    mark = f"{MARK}={directory.absolute()}".encode()
    listing = (entry for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid())
    return [int(entry.name) for entry in listing if _carries(entry, mark)]


def _carries(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or just gone
        return False


def _end(targets: Callable[[], list[int]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for target in targets():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, number)
        deadline = time.monotonic() + TERM_S
        while targets() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if not targets():
            return


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _hear_interrupts() -> None:
    # A shell's background job ignores SIGINT, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
