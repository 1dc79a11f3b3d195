"""The one seam between artifacts and the disk.

Every write, fsync, rename, link and removal of this package is a function here, and each calls
:func:`announce` first. Tests replace ``announce`` to raise what a full disk, a read-only mount or
a power cut raises at exactly that call; nothing needs a real full disk.

An ``OSError`` leaves here as a :class:`StoreError` that names the file and says what to do.
"""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

from core.errors import StoreError

Chunk: TypeAlias = bytes | bytearray | memoryview

_HINTS = {
    errno.ENOSPC: "Free some disk space (or point runtime.store elsewhere) and run again.",
    errno.EDQUOT: "Your disk quota is used up: free some space and run again.",
    errno.EROFS: "The file system is read-only: point runtime.store at a writable directory.",
    errno.EACCES: "Check the owner and permissions of the directory, or use another runtime.store.",
    errno.EPERM: "Check the owner and permissions of the directory, or use another runtime.store.",
    errno.EIO: "The disk reported a failure: nothing was published; check it before running again.",
    errno.ENOENT: "Check the path; something may have removed it meanwhile.",
    errno.EXDEV: "Keep the whole store on one file system: an artifact appears by one rename.",
    errno.ENAMETOOLONG: "Use a shorter name or a store with a shorter path.",
}


def announce(operation: str, path: Path) -> None:
    """Do nothing; called before each operation so that a test can put a fault there.

    Args:
        operation: Name of the function of this module that is about to touch the disk.
        path: What it is about to touch.
    """


def store_error(error: OSError, operation: str, path: Path) -> StoreError:
    """Turn a failure of the operating system into two lines: what, and what to do.

    Args:
        error: What the system call raised.
        operation: What was attempted, for the message.
        path: The file or directory it was attempted on.
    """
    reason = error.strerror or type(error).__name__
    hint = _HINTS.get(error.errno or 0, "Check the disk and the path, then run again.")
    return StoreError(f"{path}: cannot {operation.replace('_', ' ')}: {reason}", hint)


@contextmanager
def touching(operation: str, path: Path) -> Iterator[None]:
    """Announce an operation on the disk and translate its failure.

    Args:
        operation: What is done inside, for announcement and message.
        path: What it is done to.

    Raises:
        StoreError: An ``OSError`` happened inside.
    """
    try:
        announce(operation, path)
        yield
    except OSError as error:
        raise store_error(error, operation, path) from error


def make_directory(path: Path, mode: int = 0o777) -> bool:
    """Create one directory whose parent exists.

    Returns:
        True where it is new, False where it was there already.

    Raises:
        StoreError: It cannot be created, or something else has its name.
    """
    with touching("make_directory", path):
        try:
            path.mkdir(mode)
        except FileExistsError:
            if not path.is_dir():
                raise
            return False
        return True


def make_directories(path: Path) -> None:
    """Create a directory and the parents that it lacks.

    Raises:
        StoreError: One cannot be created.
    """
    for place in [*reversed(path.parents), path]:
        if not place.is_dir():
            make_directory(place)


def write_file(path: Path, chunks: Iterable[Chunk]) -> None:
    """Write a file from scratch, without waiting for the disk (see :func:`sync_file`).

    Raises:
        StoreError: It cannot be written; what was written so far may be left behind.
    """
    with touching("write_file", path), path.open("wb") as stream:
        for chunk in chunks:
            stream.write(chunk)


def read_file(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        StoreError: It is missing or cannot be read.
    """
    with touching("read_file", path):
        return path.read_bytes()


def sync_file(path: Path) -> None:
    """Wait until a file's bytes are on the disk.

    Raises:
        StoreError: The disk failed. The file must then be written anew: after a failed fsync the
            kernel may call its lost pages clean, so a second fsync proves nothing.
    """
    with touching("sync_file", path):
        _fsync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    """Wait until a directory's entries are on the disk.

    Raises:
        StoreError: The disk failed.
    """
    with touching("sync_directory", path):
        try:
            _fsync(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            # Some network and FUSE file systems have no fsync for directories and say EINVAL.
            if error.errno != errno.EINVAL:
                raise


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Move a file or directory in one atomic step; a file at ``target`` is replaced.

    Raises:
        StoreError: It cannot be moved.
    """
    with touching("rename", target):
        source.rename(target)


def link(source: Path, target: Path) -> None:
    """Give a file a second name.

    Raises:
        StoreError: The file system refuses hard links, or ``target`` exists.
    """
    with touching("link", target):
        target.hardlink_to(source)


def remove_file(path: Path) -> None:
    """Remove a file; one that is gone already is no error.

    Raises:
        StoreError: It cannot be removed.
    """
    with touching("remove_file", path):
        path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a directory and all below it; one that is gone already is no error.

    Raises:
        StoreError: Something in it cannot be removed.
    """
    with touching("remove_tree", path):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return


def replace_file(path: Path, chunks: Iterable[Chunk], *, durable: bool = False) -> None:
    """Put a whole file in place in one step: a reader sees the old bytes or the new ones.

    Args:
        path: The file; its directory exists.
        chunks: The new content.
        durable: Wait for the disk. Not needed inside a staging directory, which the store syncs.

    Raises:
        StoreError: It cannot be written; the old file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
    try:
        write_file(temporary, chunks)
        if durable:
            sync_file(temporary)
        rename(temporary, path)
    except StoreError:
        remove_file(temporary)
        raise
    if durable:
        sync_directory(path.parent)


def status(path: Path, *, follow: bool = False) -> os.stat_result | None:
    """Return what the system knows about a path; None where there is nothing.

    Args:
        path: What to look at.
        follow: Look at what a link points to instead of the link.

    Raises:
        StoreError: The path cannot be looked at.
    """
    with touching("status", path):
        try:
            return path.stat(follow_symlinks=follow)
        except (FileNotFoundError, NotADirectoryError):
            return None


def entries(path: Path) -> list[os.DirEntry[str]]:
    """List a directory in order of name; a missing one is empty.

    Raises:
        StoreError: The directory cannot be read.
    """
    with touching("entries", path):
        try:
            with os.scandir(path) as found:
                return sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
