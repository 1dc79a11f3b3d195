"""Which files of teacher targets there are: an index and its memo of use, readable without torch.

Directory::

    index.json                          scopes and shards, with SHA-256 and size of each
    usage.json                          when a shard was last of use, hits and misses (a memo)
    targets-<sha256>.safetensors        shards, named after their bytes, never rewritten
    .lock                               held by a process while it changes the directory

The index is the truth: a file that it does not list does not exist. Every file appears by one
rename and is checked against its SHA-256 before it is served, so none needs an fsync: what a power
cut damages is computed again.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.artifacts import filesystem
from core.artifacts.codec import read_json, write_json
from core.artifacts.locking import locked
from core.errors import CacheCorruptionError, CacheError, StoreError

KIND = "teacher_targets"
SCHEMA_VERSION = 1
DIRECTORY = ".teacher-cache"
"""Name of the cache in a store."""
INDEX, USAGE = "index.json", "usage.json"
SHARD = re.compile(r"targets-[0-9a-f]{16}\.safetensors")
OURS = re.compile(rf"{SHARD.pattern}|\.({SHARD.pattern}|index\.json|usage\.json)\.[0-9a-f]+\.tmp")
"""Names of files that may be removed where the index does not list them."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Shard(_Part):
    """One file of targets."""

    file: str = Field(pattern=f"^{SHARD.pattern}$")
    """Name in the directory."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of all its bytes."""
    size: int = Field(ge=0)
    """Bytes."""
    scope: str
    """Digest of the scope of all its targets."""
    positions: int = Field(ge=1)
    """Targets in it."""
    episodes: int = Field(ge=1)
    """Episodes that were forwarded for them."""


class Index(_Part):
    """All files, the oldest first."""

    kind: str = KIND
    schema_version: int = SCHEMA_VERSION
    scopes: dict[str, dict[str, Any]] = {}
    """Fields of each scope, by its digest."""
    shards: tuple[Shard, ...] = ()
    """Files of targets."""


class Usage(_Part):
    """What happened to the cache; losing it costs the counters and the order of pruning."""

    clock: int = 0
    """Scoring steps so far."""
    hits: dict[str, int] = {}
    """Positions that were served, by scope."""
    misses: dict[str, int] = {}
    """Positions that were computed, by scope."""
    used: dict[str, int] = {}
    """The clock when a shard last served or was written, by file."""


def directory_of(store: Path, given: Path | None = None) -> Path:
    """Return where the targets of a store lie, unless a runtime says otherwise."""
    return (given or store / DIRECTORY).absolute()


def read_index(directory: Path) -> Index:
    """Read the index; a directory without one is an empty cache.

    Raises:
        CacheCorruptionError: It is cut off or altered.
        CacheError: Something else, or another version of this system, wrote it.
    """
    path = directory / INDEX
    if filesystem.status(path) is None:
        return Index()
    try:
        document = read_json(path)
    except StoreError as error:
        raise corrupt(directory, INDEX, "is not whole") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise CacheError(
            f"{path} is no index of teacher targets",
            "Point cache.dir at an empty directory; nothing here was touched.",
        )
    if document.get("schema_version") != SCHEMA_VERSION:
        raise CacheError(
            f"{path} has schema version {document.get('schema_version')}; this version reads "
            f"{SCHEMA_VERSION}",
            "Update opdflow, or point cache.dir at an empty directory.",
        )
    try:
        index = Index.model_validate(document)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise corrupt(directory, INDEX, f"has a bad {where}") from error
    if any(shard.scope not in index.scopes for shard in index.shards):
        raise corrupt(directory, INDEX, "names a scope that it does not describe")
    return index


def read_usage(directory: Path) -> Usage:
    """Read the memo of use; one that is missing or damaged starts anew."""
    try:
        return Usage.model_validate(read_json(directory / USAGE))
    except (StoreError, ValidationError):
        return Usage()


def write_usage(directory: Path, usage: Usage) -> None:
    """Replace the memo of use."""
    write_json(directory / USAGE, usage.model_dump())


@contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Hold the lock of a cache; its directory is made where it is missing.

    Raises:
        StoreError: The directory cannot be written.
    """
    for parent in [*reversed(directory.parents), directory]:
        if filesystem.status(parent, follow=True) is None:
            filesystem.make_directory(parent)
    with locked(directory / ".lock", f"the target cache {directory.name}"):
        yield


def replace_index(directory: Path, index: Index) -> None:
    """Put a new index in place, then remove what it no longer lists; the lock is held.

    The index goes first: a reader that meets it finds every file that it names.

    Raises:
        StoreError: The directory cannot be written.
    """
    named = {shard.scope for shard in index.shards}
    scopes = {digest: fields for digest, fields in index.scopes.items() if digest in named}
    kept = index.model_copy(update={"scopes": scopes})
    write_json(directory / INDEX, kept.model_dump(mode="json"))
    for name in unlisted(directory, kept):
        filesystem.remove_file(directory / name)


def unlisted(directory: Path, index: Index) -> list[str]:
    """Return names of our files that the index does not list: what killed processes left."""
    listed = {shard.file for shard in index.shards}
    names = (entry.name for entry in filesystem.entries(directory))
    return [name for name in names if OURS.fullmatch(name) and name not in listed]


def pruned(index: Index, usage: Usage, max_bytes: int) -> Index:
    """Return the index without the least recently used shards above a number of bytes."""
    order = sorted(
        range(len(index.shards)), key=lambda i: (usage.used.get(index.shards[i].file, 0), i)
    )
    total, dropped = sum(shard.size for shard in index.shards), set()
    for i in order:
        if total <= max_bytes:
            break
        total -= index.shards[i].size
        dropped.add(i)
    kept = tuple(shard for i, shard in enumerate(index.shards) if i not in dropped)
    return index.model_copy(update={"shards": kept})


def corrupt(directory: Path, file: str, reason: str) -> CacheCorruptionError:
    """Return the refusal of one file."""
    return CacheCorruptionError(
        f"{directory / file} {reason}",
        "Nothing of it is served; the next run that scores removes it and computes its targets.",
        file,
    )
