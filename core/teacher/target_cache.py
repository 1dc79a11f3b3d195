"""Teacher targets on the disk, found by address and shared by every run of a store.

One object serves one scoring step at a time; any number of processes may use the directory. What
is read was hashed first, from the very bytes that are then used. ``core.teacher.cache_index`` says
what lies where.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialize_tensors
from torch import Tensor

from core.artifacts import filesystem
from core.teacher.addresses import ADDRESS_BYTES, Scope
from core.teacher.cache_audit import ADDRESSES, checked_bytes
from core.teacher.cache_index import (
    INDEX,
    Index,
    Shard,
    Usage,
    changing,
    pruned,
    read_index,
    read_usage,
    replace_index,
    write_usage,
)
from core.teacher.physical import Columns

Addresses: TypeAlias = NDArray[np.uint8]
"""``[N, 16]``."""

Episode: TypeAlias = tuple[Sequence[bytes], Columns]
"""Addresses and columns of one trajectory."""

NARROW = {"support_ids_NK": torch.int32}
"""Columns that are stored in a smaller type; token ids fit."""

FIRST = np.dtype(">u8")
"""The first half of an address orders it."""


class TargetCache:
    """Targets under one directory.

    Args:
        directory: Made by the first flush.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._addresses: dict[str, Addresses] = {}

    def find(
        self, scope: Scope, wanted: Sequence[Sequence[bytes]]
    ) -> tuple[list[Columns | None], set[str]]:
        """Look up all positions of trajectories.

        Args:
            scope: What the targets have in common.
            wanted: Addresses, one list per trajectory.

        Returns:
            Columns of those whose every position is there, None for the others; and the files that
            they came from.

        Raises:
            CacheCorruptionError: A file is damaged; nothing of it was served.
            CacheError: The directory holds something else.
        """
        shards = [s for s in read_index(self.directory).shards if s.scope == scope.digest]
        places = self._places(shards, {address for one in wanted for address in one})
        whole = [bool(one) and all(address in places for address in one) for one in wanted]
        chosen = [one for one, found in zip(wanted, whole, strict=True) if found]
        needed = {address: places[address] for one in chosen for address in one}
        row_of, columns = self._gathered(shards, needed)
        known = [
            {name: tensor[[row_of[address] for address in one]] for name, tensor in columns.items()}
            if found
            else None
            for one, found in zip(wanted, whole, strict=True)
        ]
        return known, {shards[number].file for number, _ in needed.values()}

    def publish(
        self,
        scope: Scope,
        episodes: Sequence[Episode],
        *,
        hits: int,
        misses: int,
        served: set[str],
        max_bytes: int,
        entries_per_shard: int,
    ) -> None:
        """Add the targets of forwarded trajectories, count the step, and prune.

        Args:
            scope: What the targets have in common.
            episodes: What was forwarded; targets that are there already are left out.
            hits: Positions of this step that were served.
            misses: Positions of this step that were computed.
            served: Files that were of use in this step.
            max_bytes: Most bytes of all shards.
            entries_per_shard: Most trajectories of one file.

        Raises:
            CacheError: The directory holds something else, or its index is damaged.
            StoreError: The directory cannot be written.
        """
        with changing(self.directory):
            index, usage = read_index(self.directory), read_usage(self.directory)
            clock = usage.clock + 1
            fresh = self._written(scope, index, episodes, entries_per_shard)
            used = {**usage.used, **dict.fromkeys([*served, *(s.file for s in fresh)], clock)}
            scopes = {**index.scopes, scope.digest: asdict(scope)}
            grown = index.model_copy(update={"scopes": scopes, "shards": (*index.shards, *fresh)})
            kept = pruned(grown, Usage(used=used), max_bytes)
            listed = {shard.file for shard in kept.shards}
            if fresh or kept.shards != index.shards:
                replace_index(self.directory, kept)
            own = scope.digest
            write_usage(
                self.directory,
                Usage(
                    clock=clock,
                    hits={**usage.hits, own: usage.hits.get(own, 0) + hits},
                    misses={**usage.misses, own: usage.misses.get(own, 0) + misses},
                    used={file: when for file, when in used.items() if file in listed},
                ),
            )

    def discard(self, file: str) -> bool:
        """Forget a damaged file; where it is the index, forget all.

        Returns:
            False where another process has removed the file from the index meanwhile.

        Raises:
            StoreError: The directory cannot be written.
        """
        with changing(self.directory):
            if file == INDEX:
                replace_index(self.directory, Index())
                return True
            index = read_index(self.directory)
            kept = tuple(shard for shard in index.shards if shard.file != file)
            if kept != index.shards:
                replace_index(self.directory, index.model_copy(update={"shards": kept}))
            return kept != index.shards

    def _places(self, shards: Sequence[Shard], wanted: set[bytes]) -> dict[bytes, tuple[int, int]]:
        """Return shard number and row of each address that some shard holds."""
        places: dict[bytes, tuple[int, int]] = {}
        left_NA = np.frombuffer(b"".join(wanted), dtype=np.uint8).reshape(-1, ADDRESS_BYTES)
        for number, shard in enumerate(shards):
            if not len(left_NA):
                break
            own_NA = self._loaded(shard)
            rows_N = np.searchsorted(_order(own_NA), _order(left_NA))
            rows_N = np.minimum(rows_N, len(own_NA) - 1)
            match_N = (own_NA[rows_N] == left_NA).all(axis=1)
            for address, row in zip(left_NA[match_N], rows_N[match_N], strict=True):
                places[address.tobytes()] = (number, int(row))
            left_NA = left_NA[~match_N]
        return places

    def _loaded(self, shard: Shard) -> Addresses:
        """Return the addresses of a shard, which was hashed when this process first saw it."""
        if shard.file not in self._addresses:
            self._addresses[shard.file] = self._tensors(shard)[ADDRESSES].numpy()
        return self._addresses[shard.file]

    def _tensors(self, shard: Shard) -> dict[str, Tensor]:
        return parse_tensors(checked_bytes(self.directory, shard))

    def _gathered(
        self, shards: Sequence[Shard], places: Mapping[bytes, tuple[int, int]]
    ) -> tuple[dict[bytes, int], Columns]:
        """Read the values of places, each file once: the row of each address, and columns."""
        by_shard: dict[int, list[tuple[bytes, int]]] = {}
        for address, (number, row) in places.items():
            by_shard.setdefault(number, []).append((address, row))
        order: list[bytes] = []
        parts: list[Columns] = []
        for number, members in by_shard.items():
            order += [address for address, _ in members]
            rows = [row for _, row in members]
            tensors = self._tensors(shards[number])
            parts.append({k: t[rows] for k, t in tensors.items() if k != ADDRESSES})
        names = parts[0] if parts else {}
        joined = {name: torch.cat([part[name] for part in parts]) for name in names}
        wide = {name: t.long() if name in NARROW else t for name, t in joined.items()}
        return {address: row for row, address in enumerate(order)}, wide

    def _written(
        self, scope: Scope, index: Index, episodes: Sequence[Episode], entries_per_shard: int
    ) -> list[Shard]:
        """Write new shards; the lock is held, so nobody adds the same targets meanwhile."""
        shards = [s for s in index.shards if s.scope == scope.digest]
        seen = set(self._places(shards, {address for own, _ in episodes for address in own}))
        fresh: list[Episode] = []
        for own, columns in episodes:
            new = {address: n for n, address in enumerate(own) if address not in seen}
            seen.update(new)
            if new:
                rows = list(new.values())
                fresh.append((list(new), {name: t[rows] for name, t in columns.items()}))
        return [
            self._write(scope, fresh[start : start + entries_per_shard])
            for start in range(0, len(fresh), entries_per_shard)
        ]

    def _write(self, scope: Scope, episodes: Sequence[Episode]) -> Shard:
        own = [address for addresses, _ in episodes for address in addresses]
        order = sorted(range(len(own)), key=own.__getitem__)
        joined = bytearray(b"".join(own[row] for row in order))
        tensors = {ADDRESSES: torch.frombuffer(joined, dtype=torch.uint8).view(-1, ADDRESS_BYTES)}
        for name in episodes[0][1]:
            column = torch.cat([columns[name] for _, columns in episodes])[order]
            tensors[name] = column.to(NARROW.get(name, column.dtype))
        blob = serialize_tensors(tensors)
        digest = hashlib.sha256(blob).hexdigest()
        file = f"targets-{digest[:16]}.safetensors"
        filesystem.replace_file(self.directory / file, [blob])
        return Shard(
            file=file,
            sha256=digest,
            size=len(blob),
            scope=scope.digest,
            positions=len(own),
            episodes=len(episodes),
        )


def _order(addresses_NA: Addresses) -> NDArray[np.uint64]:
    return np.ascontiguousarray(addresses_NA[:, :8]).view(FIRST)[:, 0].astype(np.uint64)


@lru_cache(maxsize=8)
def open_cache(directory: Path) -> TargetCache:
    """Return this process's one cache of a directory, so that what it knows is shared."""
    return TargetCache(directory)
