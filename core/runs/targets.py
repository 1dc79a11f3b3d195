"""``teacher-cache/``: what the teacher said, one shard per set of episodes, readable without torch.

A shard is the ``targets.safetensors`` of a cycle or of a data set. The index says whose targets it
holds, and how many positions of each episode, in the order of the tensors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from core.artifacts.codec import read_json
from core.artifacts.record import ArtifactRef
from core.errors import CacheError, StoreError
from core.runs.layout import TARGETS_INDEX, shard_name
from core.runs.parts import Parts

KIND, SCHEMA_VERSION = "run_targets", 1
TENSORS, DESCRIPTION = "targets.safetensors", "targets.json"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ShardEntry(_Row):
    """Targets of one episode."""

    trajectory_id: str
    tokens_digest: str
    """SHA-256 of its token ids; targets of other tokens are refused."""
    positions: int


class TargetShard(_Row):
    """Targets of one cycle."""

    file: str
    role: str
    """Of its artifact in the manifest."""
    cycle: int | None
    """That trained on it; None for a data set that every cycle replays."""
    sha256: str
    size: int
    artifact: ArtifactRef
    provenance: dict[str, Any]
    """Mode, top-k, temperature, teacher's and tokenizer's digests, policy version."""
    entries: tuple[ShardEntry, ...]


class TargetIndex(_Row):
    """All shards of a run."""

    kind: str = KIND
    schema_version: int = SCHEMA_VERSION
    shards: tuple[TargetShard, ...] = ()


def index_targets(parts: Parts) -> TargetIndex:
    """Describe the targets of a run.

    Raises:
        StoreError: An artifact has no record, or its description is damaged.
    """
    return TargetIndex(
        shards=tuple(
            _shard(parts, place, cycle, role) for place, (cycle, role) in enumerate(_scored(parts))
        )
    )


def shard_sources(parts: Parts, index: TargetIndex) -> Mapping[str, Path]:
    """Return the file of the store behind each shard, by its name in the index."""
    return {shard.file: parts.path(shard.role) / TENSORS for shard in index.shards}


def read_index(run: Path) -> TargetIndex:
    """Read the index of a run directory.

    Raises:
        CacheError: It is missing or no such index.
    """
    path = run / TARGETS_INDEX
    try:
        return TargetIndex.model_validate(read_json(path))
    except (StoreError, ValidationError) as error:
        raise CacheError(
            f"{path} is no index of a run's targets", "Run the recipe again to remake it."
        ) from error


def _scored(parts: Parts) -> list[tuple[int | None, str]]:
    """Return cycle and role of every artifact that holds targets, and still has its files."""
    found: list[tuple[int | None, str]] = [(None, "dataset"), *parts.numbered("targets")]
    return [(cycle, role) for cycle, role in found if parts.has(role, TENSORS)]


def _shard(parts: Parts, place: int, cycle: int | None, role: str) -> TargetShard:
    record = parts.record(role)
    described = read_json(parts.path(role) / DESCRIPTION)
    entry = record.files[TENSORS]
    return TargetShard(
        file=shard_name(place),
        role=role,
        cycle=cycle,
        sha256=entry.sha256,
        size=entry.size,
        artifact=record.ref,
        provenance=described["provenance"],
        entries=tuple(ShardEntry(**row) for row in described["trajectories"]),
    )
