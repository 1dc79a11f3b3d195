"""What a directory holds: its files, their hashes, and the digest over them."""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from core.artifacts import filesystem
from core.artifacts.record import RECORD_NAME, FileEntry, check_relative_path
from core.errors import StoreError


def content_digest(files: Mapping[str, FileEntry]) -> str:
    """Hash the content of an artifact: SHA-256 over the sorted lines ``sha256  path``.

    These are the lines of ``sha256sum`` in byte order of the path, without ``record.json``, so
    the digest can be recomputed without this system. Time, owner and mode are not content.
    """
    ordered = sorted(files.items(), key=lambda item: item[0].encode())
    lines = "".join(f"{entry.sha256}  {path}\n" for path, entry in ordered)
    return hashlib.sha256(lines.encode()).hexdigest()


def hash_file(path: Path) -> FileEntry:
    """Read a file once and return its hash and size.

    Raises:
        StoreError: It cannot be read.
    """
    with filesystem.touching("hash_file", path), path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileEntry(sha256=digest, size=os.fstat(stream.fileno()).st_size)


def strange_part(root: Path, path: Path) -> str | None:
    """Say which part of a path below a root is not what it should be: directories, then a file.

    A link may lead out of the root, so none is followed.

    Returns:
        What is wrong, or None.
    """
    for parent in [*reversed(path.relative_to(root).parents)][1:]:
        status = filesystem.status(root / parent)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            return f"{parent.as_posix()} is a link or no directory"
    status = filesystem.status(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        return "is not a plain file"
    return None


def list_contents(directory: Path) -> tuple[list[str], list[Path]]:
    """Walk a directory without following links.

    Returns:
        Relative paths of its files without the record, sorted, and all directories, inner first.

    Raises:
        StoreError: It holds something that is neither a file nor a directory, or a name that not
            every system can store.
    """
    files: list[str] = []
    directories = [directory]
    for current in directories:  # grows while it is walked
        for entry in filesystem.entries(current):
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                directories.append(path)
            else:
                files.append(_plain_file(entry, path.relative_to(directory).as_posix()))
    return sorted(f for f in files if f != RECORD_NAME), directories[::-1]


def _plain_file(entry: os.DirEntry[str], relative: str) -> str:
    if not entry.is_file(follow_symlinks=False):
        raise StoreError(
            f"{entry.path}: an artifact holds files, and this is a link or a special file",
            "Write a copy of the file instead.",
        )
    try:
        return check_relative_path(relative)
    except ValueError as error:
        raise StoreError(f"{entry.path}: {error}", "Give the file a plain name.") from error
