"""Files into a run directory and out of it again; what a user put there stays."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from core.artifacts.filesystem import replace_file
from core.artifacts.record import FileEntry
from core.errors import StoreError
from core.runs.contents import RunContents
from core.runs.manifest import load_manifest, write_manifest

LOCKS = ".locks"
"""Beside the runs: a lock per run, held by the process that runs it."""


def lock_file(directory: Path) -> Path:
    """Return the lock of a run."""
    return directory.parent / LOCKS / f"{directory.name}.lock"


def place_files(directory: Path, contents: RunContents) -> None:
    """Put all files in place: links first, so that what describes a file comes after it.

    Raises:
        StoreError: The directory cannot be written, or a link leads out of it.
        OSError: The same, from the system.
    """
    for name, source in contents.linked.items():
        _link(source, _make_room(directory, name))
    for name, chunks in contents.written.items():
        replace_file(_make_room(directory, name), chunks)


def remove_files(directory: Path, names: Iterable[str]) -> None:
    """Remove files of an older run, and directories that become empty."""
    gone = sorted(names)
    for name in gone:
        _refuse_links(directory, name)
        (directory / name).unlink(missing_ok=True)
    parents = {parent for name in gone for parent in PurePosixPath(name).parents}
    for parent in sorted(parents, key=lambda one: -len(one.parts)):
        place = directory / parent
        if place != directory and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def refresh(directory: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a finished run, and what its manifest says of them.

    Args:
        directory: Of the run.
        files: New content by place.

    Raises:
        InputError: It is no run directory.
        StoreError: It cannot be written.
    """
    manifest = load_manifest(directory)
    for name, data in files.items():
        replace_file(_make_room(directory, name), [data])
    entries = {
        name: FileEntry(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        for name, data in files.items()
    }
    known = dict(sorted({**manifest.files, **entries}.items()))
    owned = sorted({*manifest.owned, *entries})
    write_manifest(directory, manifest.model_copy(update={"files": known, "owned": owned}))


def _make_room(directory: Path, name: str) -> Path:
    _refuse_links(directory, name)
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _refuse_links(directory: Path, name: str) -> None:
    for parent in PurePosixPath(name).parents:
        place = directory / parent
        if place != directory and place.is_symlink():
            raise StoreError(
                f"{place} is a link: nothing was written through it",
                "Remove the link, or choose another directory with run.run_id=NAME.",
            )


def _link(source: Path, target: Path) -> None:
    if target.exists() and not target.is_symlink() and target.samefile(source):
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
