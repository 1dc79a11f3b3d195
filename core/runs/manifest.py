"""``manifest.json``: what a run was, how far it came, and the digest of every file beside it.

It is replaced as a whole, first when a run is accepted and last when all of its files are in
place. A run that was killed cannot say so: its manifest still says ``running``, and nobody holds
its lock, which readers see as ``interrupted``.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.artifacts.filesystem import read_file, replace_file
from core.artifacts.record import ArtifactRef, FileEntry, RelativePath
from core.errors import InputError, StoreError, StoreSchemaError
from core.runs.layout import MANIFEST

SCHEMA_VERSION = 1

Status = Literal["ready", "running", "completed", "failed", "interrupted"]
Json = dict[str, Any]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ArtifactEntry(_Row):
    """Where files of the run came from."""

    ref: ArtifactRef
    task: str
    """The step that made it."""
    seconds: float | None = None
    """Wall seconds of the computation, whenever it happened."""
    numeric_class: Json = Field(default_factory=dict)
    code_digest: str = ""


class Manifest(_Row):
    """Everything that a run says about itself; no secret, no person, no place."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    error: Json | None = None
    """Type, message and remedy of what ended a run that failed."""
    run_id: str
    """Name of the directory when the run was made."""
    run_name: str
    notes: str = ""
    tags: tuple[str, ...] = ()
    created_at: str
    """UTC, ISO 8601: when this recipe first ran under this name."""
    started_at: str | None = None
    """When the newest attempt began."""
    ended_at: str | None = None
    opdflow_version: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    python_version: str = ""
    os: str = ""
    os_release: str = ""
    platform: str = ""
    packages: dict[str, str | None] = Field(default_factory=dict)
    gpu: Json = Field(default_factory=dict)
    """What the machine of the newest attempt has; whether it was used is in ``models.device``."""
    mode: str
    is_on_policy: bool
    seed: int
    deterministic: bool
    config: Json = Field(default_factory=dict)
    """The three layers of the configuration, with the SHA-256 of each."""
    source: Json = Field(default_factory=dict)
    environment: Json = Field(default_factory=dict)
    models: Json = Field(default_factory=dict)
    objective: Json = Field(default_factory=dict)
    roles: Json = Field(default_factory=dict)
    """Who acts, who teaches, who verifies, what is updated."""
    memory: Json = Field(default_factory=dict)
    counters: Json = Field(default_factory=dict)
    policy_version: int | None = None
    """Committed optimizer steps behind the final student."""
    stop: Json | None = None
    """Why the run ended before its last cycle."""
    budget: Json = Field(default_factory=dict)
    """What was spent of the run's budget; empty where there was none."""
    measurement_status: Json = Field(default_factory=dict)
    provenance: Json = Field(default_factory=dict)
    """Software and hardware that computed the last part, which may be another machine's."""
    artifacts: dict[str, ArtifactEntry] = Field(default_factory=dict)
    """By role, in the order of the run."""
    inputs: dict[str, ArtifactRef] = Field(default_factory=dict)
    student: ArtifactRef | None = None
    """The newest state, which is the checkpoint ``final``."""
    report: ArtifactRef | None = None
    recipe_digest: str
    """SHA-256 of the resolved recipe's canonical form: tells whether two runs asked the same."""
    exported: Json | None = None
    """What was changed and left out, in a copy made by ``opd export-run``."""
    owned: list[RelativePath] = Field(default_factory=list)
    """Files that runs of this name may have put here; nothing else is ever removed."""
    files: dict[RelativePath, FileEntry] = Field(default_factory=dict)
    """Every file of the run; empty while they are being put in place."""
    digest: str = ""
    """SHA-256 of this document without this line."""


def dump_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of ``manifest.json``, which carry their own digest."""
    plain = manifest.model_dump(mode="json")
    plain["digest"] = _digest(plain)
    return (json.dumps(plain, indent=1, allow_nan=False) + "\n").encode()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest of a run in one step, and wait for the disk.

    Raises:
        StoreError: It cannot be written; the old one is untouched.
    """
    replace_file(directory / MANIFEST, [dump_manifest(manifest)], durable=True)


def load_manifest(directory: Path) -> Manifest:
    """Read a manifest as it stands, whatever the state of the run.

    Raises:
        InputError: There is none, or not one byte for byte as it was written.
        StoreSchemaError: A newer version of this system wrote it.
    """
    path = directory / MANIFEST
    try:
        data = read_file(path)
        plain = json.loads(data)
        _refuse_newer(path, plain)
        manifest = Manifest.model_validate(plain)
    except StoreSchemaError:
        raise
    except (StoreError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"{directory} is no run directory: {MANIFEST} cannot be used: {_reason(error)}",
            "Give a directory that `opd run` printed, such as runs/toy-seed1234, or run it again.",
        ) from error
    if dump_manifest(manifest) != data:
        raise InputError(
            f"{path} is not as it was written: its own digest does not fit",
            "Run the recipe again to remake the directory.",
        )
    return manifest


def _refuse_newer(path: Path, plain: Any) -> None:
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StoreSchemaError(
            f"{path}: schema version {version} is newer than {SCHEMA_VERSION}, the newest known",
            "Update opdflow.",
        )


def _digest(plain: Json) -> str:
    rest = {name: value for name, value in plain.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, StoreError):
        return error.message.rpartition(": ")[2]
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
    return "not JSON"
