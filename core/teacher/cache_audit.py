"""What a cache of teacher targets amounts to, and whether its bytes are what they should be.

Headers of safetensors files are read here as plain bytes: neither torch nor the library is needed.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from core.artifacts import filesystem
from core.errors import CacheCorruptionError, CacheError
from core.teacher.addresses import ADDRESS_BYTES
from core.teacher.cache_index import (
    Index,
    Shard,
    changing,
    corrupt,
    read_index,
    read_usage,
    unlisted,
)

ADDRESSES = "addresses_NA"
"""Tensor of every shard: the addresses of its targets, ascending."""
HALF_BYTES = 2
"""Bytes of one probability in the theoretical size: 16-bit distributions over the vocabulary."""
LENGTH_BYTES = 8

REPORTED = ("teacher_digest", "mode", "top_k", "temperature", "dtype", "device", "threads")


def stats(directory: Path) -> dict[str, Any]:
    """Return totals and one row per teacher and way of scoring.

    Raises:
        CacheError: There is no cache, or its index cannot be read.
    """
    index, usage = _existing(directory), read_usage(directory)
    scopes = sorted(set(index.scopes) | set(usage.hits) | set(usage.misses))
    rows = [
        {
            "scope": scope,
            **{name: index.scopes.get(scope, {}).get(name) for name in REPORTED},
            **_totals([shard for shard in index.shards if shard.scope == scope], index),
            **_rates(usage.hits.get(scope, 0), usage.misses.get(scope, 0)),
        }
        for scope in scopes
    ]
    return {
        "directory": str(directory),
        **_totals(list(index.shards), index),
        **_rates(sum(usage.hits.values()), sum(usage.misses.values())),
        "scopes": rows,
    }


def validate(directory: Path) -> list[str]:
    """Hash every file again and return what is wrong, one line each, with the file's name.

    Raises:
        CacheError: There is no cache, or something else wrote its index.
    """
    with changing(_present(directory)):
        try:
            index = read_index(directory)
        except CacheCorruptionError as error:
            return [error.message]
        problems = []
        for shard in index.shards:
            try:
                checked_bytes(directory, shard)
            except CacheCorruptionError as error:
                problems.append(error.message)
        stray = [f"{directory / name} is not in the index" for name in unlisted(directory, index)]
        return problems + stray


def checked_bytes(directory: Path, shard: Shard) -> bytes:
    """Return the bytes of a shard after checking all that its index says of them.

    Raises:
        CacheCorruptionError: They are missing, cut off, altered, or not a shard.
    """
    path = directory / shard.file
    if filesystem.status(path) is None:
        raise corrupt(directory, shard.file, "is missing")
    blob = filesystem.read_file(path)
    if len(blob) != shard.size:
        raise corrupt(directory, shard.file, f"has {len(blob)} bytes instead of {shard.size}")
    if hashlib.sha256(blob).hexdigest() != shard.sha256:
        raise corrupt(directory, shard.file, "is altered: its SHA-256 differs")
    try:
        header = read_header(blob)
        found = header[ADDRESSES]
        counts = {tensor["shape"][0] for tensor in header.values()}
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise corrupt(directory, shard.file, "is no file of targets") from error
    shape = [shard.positions, ADDRESS_BYTES]
    if (found["dtype"], found["shape"], counts) != ("U8", shape, {shard.positions}):
        raise corrupt(directory, shard.file, "does not hold the positions that its index counts")
    return blob


def read_header(blob: bytes) -> dict[str, Any]:
    """Return name, dtype, shape and offsets of the tensors in a safetensors file.

    Raises:
        ValueError: It is not one.
    """
    length = int.from_bytes(blob[:LENGTH_BYTES], "little")
    if length > len(blob) - LENGTH_BYTES:
        raise ValueError("the header is longer than the file")
    header = json.loads(blob[LENGTH_BYTES : LENGTH_BYTES + length])
    header.pop("__metadata__", None)
    return header


def _present(directory: Path) -> Path:
    if filesystem.status(directory / "index.json", follow=True) is None:
        raise CacheError(
            f"{directory}: there is no cache of teacher targets",
            "Run a recipe with cache.enabled=true, or name another place by --store or --dir.",
        )
    return directory


def _existing(directory: Path) -> Index:
    return read_index(_present(directory))


def _totals(shards: list[Shard], index: Index) -> dict[str, Any]:
    stored = sum(shard.size for shard in shards)
    full = sum(
        shard.positions * index.scopes[shard.scope]["vocab_size"] * HALF_BYTES for shard in shards
    )
    return {
        "positions": sum(shard.positions for shard in shards),
        "entries": sum(shard.episodes for shard in shards),
        "shards": len(shards),
        "bytes": stored,
        "full_vocabulary_bytes": full,
        "compression": full / stored if stored else None,
    }


def _rates(hits: int, misses: int) -> dict[str, Any]:
    asked = hits + misses
    return {"hits": hits, "misses": misses, "hit_rate": hits / asked if asked else None}
