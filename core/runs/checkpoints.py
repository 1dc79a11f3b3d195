"""``checkpoints/``: the final state, the one before it, and those that were evaluated.

A checkpoint is the state's own files and ``checkpoint.json``, which is put there last and names
size and SHA-256 of each. It is checked before any model is touched.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from core.artifacts.codec import read_json
from core.artifacts.contents import content_digest, hash_file
from core.artifacts.record import ArtifactRef, FileEntry
from core.errors import InputError, StoreError
from core.runs.layout import CHECKPOINT, CHECKPOINTS, FINAL, STATE_FILES, checkpoint_name
from core.runs.parts import Parts

KIND, SCHEMA_VERSION = "checkpoint", 1
REMEDY = "Run the recipe again to remake it, or restore the files from where they were copied."


class Checkpoint(BaseModel):
    """``checkpoint.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: str = KIND
    schema_version: int = SCHEMA_VERSION
    cycle: int
    """Cycles done."""
    artifact: ArtifactRef
    """The state in the store that it was linked from."""
    counters: dict[str, int]
    identity: dict[str, Any]
    """Which model the weights belong to."""
    files: dict[str, FileEntry]
    content_digest: str
    """SHA-256 over the sorted lines ``sha256  file``."""


def kept_checkpoints(parts: Parts) -> dict[str, Checkpoint]:
    """Return the checkpoints of a run by the names of their directories.

    The last two states and every evaluated one; a state whose files were pruned is left out.

    Raises:
        StoreError: A state has no record, or its description is damaged.
    """
    states = {cycle + 1: role for cycle, role in parts.numbered("student")}
    if "cold_start" in parts.refs:
        states[0] = "cold_start"
    evaluated = {number - 1 for number, _ in parts.numbered("evaluation")}
    there = [cycle for cycle in sorted(states) if parts.has(states[cycle], STATE_FILES[-1])]
    kept = [cycle for cycle in there if cycle in evaluated or cycle in there[-2:]]
    return {
        FINAL if cycle == there[-1] else checkpoint_name(cycle): _checkpoint(
            parts, states[cycle], cycle
        )
        for cycle in kept
    }


def checkpoint_sources(parts: Parts, cycle: int) -> Mapping[str, Path]:
    """Return the files of a state in the store, by name."""
    role = "cold_start" if cycle == 0 else f"student_{cycle - 1:04d}"
    return {name: parts.path(role) / name for name in STATE_FILES}


def open_checkpoint(run: Path, name: str = FINAL) -> Path:
    """Return the directory of a checkpoint whose every byte is as it was written.

    Args:
        run: A run directory.
        name: ``final`` or ``cycle-000012``.

    Raises:
        InputError: It is missing, cut off, altered, or mixed from two.
    """
    directory = run / CHECKPOINTS / name
    known = read_checkpoint(directory)
    for file, entry in known.files.items():
        try:
            found = hash_file(directory / file)
        except StoreError as error:
            raise InputError(f"{directory / file} is missing", REMEDY) from error
        if found != entry:
            what = "cut off" if found.size < entry.size else "altered"
            raise InputError(f"{directory / file} is {what}: nothing was loaded", REMEDY)
    return directory


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read ``checkpoint.json``.

    Raises:
        InputError: It is missing or does not describe a checkpoint.
    """
    path = directory / CHECKPOINT
    try:
        found = Checkpoint.model_validate(read_json(path))
    except (StoreError, ValidationError) as error:
        raise InputError(f"{path} does not describe a checkpoint", REMEDY) from error
    sound = set(found.files) == set(STATE_FILES)
    if not sound or found.content_digest != content_digest(found.files):
        raise InputError(f"{path} does not describe a checkpoint: its digest does not fit", REMEDY)
    return found


def _checkpoint(parts: Parts, role: str, cycle: int) -> Checkpoint:
    record, place = parts.record(role), parts.path(role)
    files = {name: record.files[name] for name in STATE_FILES}
    return Checkpoint(
        cycle=cycle,
        artifact=record.ref,
        counters=read_json(place / "state.json")["counters"],
        identity=read_json(place / "model.json"),
        files=files,
        content_digest=content_digest(files),
    )
