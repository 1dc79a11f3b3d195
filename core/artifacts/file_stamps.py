"""Hashes of a user's own files, remembered behind a stat stamp so that they are read once.

Stamps only save time. They live outside what they describe, and one is trusted only while size,
inode and both time stamps of its file are those that were hashed.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.artifacts import filesystem
from core.errors import StoreError

logger = logging.getLogger(__name__)

RACY_NS = 2_000_000_000
"""A file changed this shortly before hashing may change again within one tick of its time stamp."""


def file_digests(files: Mapping[str, Path], about: Path, stamps: Path | None) -> dict[str, str]:
    """Return the SHA-256 of each file's content.

    Args:
        files: Name to file; the files exist.
        about: What the files are of, a directory or the one file; it names the stamps.
        stamps: Directory of stat stamps; None hashes every file.

    Raises:
        OSError: A file cannot be read.
    """
    known = _read_stamps(stamps, about)
    entries = {name: _stamped(file, known.get(name)) for name, file in files.items()}
    if stamps is not None and entries != known:
        _write_stamps(stamps, about, entries)
    return {name: entry["sha256"] for name, entry in entries.items()}


def _stamped(file: Path, known: dict[str, Any] | None) -> dict[str, Any]:
    """Return the stamp of a file: the known one if it still holds, else of a fresh hash."""
    stat = file.stat()
    facts = {
        "size": stat.st_size,
        "inode": stat.st_ino,
        "mtime_ns": stat.st_mtime_ns,
        "ctime_ns": stat.st_ctime_ns,
    }
    if known is not None and all(known.get(name) == value for name, value in facts.items()):
        settled_ns = known.get("hashed_ns", 0) - RACY_NS
        if max(stat.st_mtime_ns, stat.st_ctime_ns) < settled_ns:
            return known
    hashed_ns = time.time_ns()
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {**facts, "hashed_ns": hashed_ns, "sha256": digest}


def _stamp_file(stamps: Path, path: Path) -> Path:
    return stamps / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"


def _read_stamps(stamps: Path | None, path: Path) -> dict[str, Any]:
    """Return the stamps of a path; whatever cannot be read is as good as absent."""
    if stamps is None:
        return {}
    try:
        entries = json.loads(_stamp_file(stamps, path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("stamps of %s cannot be read, hashing again: %s", path, error)
        return {}
    return entries if isinstance(entries, dict) else {}


def _write_stamps(stamps: Path, path: Path, entries: dict[str, Any]) -> None:
    """Replace the stamps of a path atomically; failing to costs time, not correctness."""
    try:
        filesystem.make_directories(stamps)
        text = json.dumps(entries, sort_keys=True)
        filesystem.replace_file(_stamp_file(stamps, path), [text.encode()])
    except (OSError, StoreError) as error:
        logger.warning("stamps of %s cannot be kept, the next start hashes again: %s", path, error)
