"""What is known about an artifact: its reference, and the record beside its files."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from core.artifacts import filesystem
from core.artifacts.code import CodeDigest
from core.errors import DamagedRecordError, StoreSchemaError

SCHEMA_VERSION = 2
"""Raised with every change of :class:`Record`; older systems then refuse instead of misreading."""

RECORD_NAME = "record.json"
SEAL = "seal"
"""Top-level key of a record: neither its first nor its last line."""
MAX_RECORD_BYTES = 64 << 20
"""What is larger is not read: a record of a million files has less."""

Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,47}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,99}$")]
HexKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def check_relative_path(text: str) -> str:
    """Return a path that stays inside its directory, written with forward slashes.

    Raises:
        ValueError: It is absolute, climbs, repeats a slash, or holds control characters.
    """
    if set(text.split("/")) & {"", ".", ".."}:
        raise ValueError(f"{text!r} is not a plain path inside the artifact")
    if "\\" in text or not text.isprintable():
        raise ValueError(f"{text!r} holds a character that not every system can store")
    return text


RelativePath = Annotated[str, AfterValidator(check_relative_path)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ArtifactRef(_Frozen):
    """A pointer that survives JSON: where the artifact is, and which bytes it must hold."""

    kind: Kind
    """What it is, e.g. ``rollouts``; the directory under the store's root."""
    name: Name
    """Human part of the address; not identity."""
    key: HexKey
    """Hash of what was asked for."""
    digest: Sha256
    """Hash of the content that was built."""

    @property
    def address(self) -> str:
        """Directory relative to the store's root."""
        return f"{self.kind}/{self.name}-{self.key}"


class FileEntry(_Frozen):
    """One file of an artifact."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0)]
    """Bytes."""


class NumericClass(_Frozen):
    """What may change the last bits of a computation without changing its meaning."""

    device: str
    """Kind of device, e.g. ``cpu`` or ``cuda:NVIDIA H200``; never an ordinal."""
    physical_rows: int | None = None
    """Rows of every batch that went through the model, padding included."""
    width: int | None = None
    """Padded tokens per row, where it is fixed."""
    chunk: int | None = None
    """Positions per slice of the loss."""
    trajectory_batch_size: int | Literal["auto"] | None = None
    """Rows of a physical batch of scoring and training, as the runtime asked for them."""
    max_update_padded_tokens: int | None = None
    """Padded tokens of such a batch; 0 is no limit."""
    length_bucketing: bool | None = None
    """Whether such batches hold sequences of similar length."""
    threads: int | None = None
    """Threads of the matrix products on a CPU."""
    rows_are_independent: bool | None = None
    """Whether the start-up check found that an episode's bits do not depend on its batch."""
    fingerprint: str | None = None
    """SHA-256 of what that check computed."""


class Provenance(_Frozen):
    """Where the bytes came from. Time lives here only: it is not content."""

    commit: str | None = None
    dirty: bool | None = None
    python: str
    packages: dict[str, str] = Field(default_factory=dict)
    hardware: dict[str, str | int] = Field(default_factory=dict)
    arithmetic: dict[str, str | bool] = Field(default_factory=dict)
    """Switches of torch that decide its kernels; empty for a step without torch."""
    seeds: dict[str, int] = Field(default_factory=dict)
    started: str
    """UTC, ISO 8601."""
    wall_time_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Record(_Frozen):
    """The last file written into an artifact; without it the artifact does not exist."""

    schema_version: int = SCHEMA_VERSION
    kind: Kind
    name: Name
    task: str
    version: str
    key: HexKey
    payload: dict[str, Any]
    """Exactly what was hashed into ``key``."""
    parents: dict[str, ArtifactRef] = Field(default_factory=dict)
    files: dict[RelativePath, FileEntry]
    digest: Sha256
    """Hash over the sorted (path, sha256) of ``files``."""
    code: CodeDigest | None = None
    """Sources that built it; advisory, not part of the key."""
    numeric_class: NumericClass | None = None
    provenance: Provenance
    metrics: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    shed: tuple[RelativePath, ...] = ()
    """Large files that were removed to save space, to be made again when something needs them. The
    artifact still answers for its key, but not for its bytes."""
    pruned: bool = False
    """The files were removed to save space; a lookup is a miss."""

    @property
    def ref(self) -> ArtifactRef:
        """Pointer to the artifact."""
        return ArtifactRef(kind=self.kind, name=self.name, key=self.key, digest=self.digest)


def dump_record(record: Record) -> bytes:
    """Return the bytes of ``record.json``: sorted keys, one line feed at the end.

    ``seal`` is the SHA-256 of the document without it, since metrics and origin are in no other
    hash.
    """
    plain = record.model_dump(mode="json")
    return _text({**plain, SEAL: hashlib.sha256(_text(plain)).hexdigest()})


def _text(plain: dict[str, Any]) -> bytes:
    return (json.dumps(plain, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def load_record(path: Path) -> Record:
    """Read a ``record.json``.

    Raises:
        StoreSchemaError: A newer version of this system wrote it.
        DamagedRecordError: It is no record: cut off, not JSON, fields are missing or unknown, or
            a byte is not as it was written.
        StoreError: It cannot be read.
    """
    status = filesystem.status(path)
    if status is not None and status.st_size > MAX_RECORD_BYTES:
        raise damaged(path, f"has {status.st_size} bytes; no record is that large")
    data = filesystem.read_file(path)
    try:
        plain = json.loads(data, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise damaged(path, "is not JSON") from error
    if not isinstance(plain, dict):
        raise damaged(path, "is not a JSON object")
    _refuse_newer(path, plain.get("schema_version"))
    seal = plain.pop(SEAL, None)
    try:
        record = Record.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise damaged(path, f"{field}: {first['msg']}") from error
    if not _is_sealed(data, seal):
        raise damaged(path, "is not as it was written: its seal does not fit")
    return record


def _is_sealed(data: bytes, seal: object) -> bool:
    """Return whether a seal is the hash of the other lines.

    The bytes are hashed as they are: writing the document again to compare costs most of a lookup.
    """
    before, line, after = data.partition(f'\n "{SEAL}": "{seal}",\n'.encode())
    return bool(line) and hashlib.sha256(before + b"\n" + after).hexdigest() == seal


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


def _refuse_newer(path: Path, version: object) -> None:
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StoreSchemaError(
            f"{path}: schema version {version} is newer than {SCHEMA_VERSION}, the newest known",
            "Update opdflow, or point runtime.store at a store that this version wrote.",
        )


def damaged(path: Path, what: str) -> DamagedRecordError:
    """Return the refusal of a record, with what to do."""
    return DamagedRecordError(f"{path}: {what}", "Run again: the artifact will be rebuilt.")
