"""An adapter's directory: PEFT's files, and beside them what they belong to and what they can do.

Reads JSON and safetensors headers only, so that a recipe with an adapter is checked, planned and
keyed without torch. The format of configuration and weights is PEFT's; the manifest is ours and is
what PEFT's files do not say: the base by content, the tokenizer, and a measured evaluation.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from core.artifacts.contents import hash_file
from core.artifacts.filesystem import read_file
from core.artifacts.record import FileEntry
from core.errors import ModelSourceError
from core.models.source import check_safetensors, read_config
from core.recipe.schema.adapters import Lora

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MANIFEST = "opdflow_adapter.json"
CONTENT = (CONFIG, WEIGHTS)
"""What the numbers depend on."""

PLAIN = {
    "use_dora": False,
    "use_rslora": False,
    "fan_in_fan_out": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "layers_to_transform": None,
    "layer_replication": None,
    "lora_bias": False,
    "trainable_token_indices": None,
    "alora_invocation_tokens": None,
    "target_parameters": None,
    "use_qalora": False,
    "use_bdlora": None,
    "arrow_config": None,
    "kasa_config": None,
    "monteclora_config": None,
    "velora_config": None,
}
"""Settings of PEFT that change what an adapter computes, with the one value that runs here."""

CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Starts of ``init_lora_weights`` by which PEFT changes the base's own weights when it loads."""


class Document(BaseModel):
    """A part of a manifest."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class MeasuredRate(Document):
    """A share that was counted, with Wilson's 95 % interval; null where nothing was to count."""

    successes: int
    total: int
    estimate: float | None
    lower: float | None
    upper: float | None


class Evidence(Document):
    """A qualification: where it was measured, and what came out."""

    environment: str
    params: dict[str, Any]
    difficulty: str
    split: str
    tasks: int
    rates: dict[str, MeasuredRate]
    """By name: ``strict_success``, ``recovery_after_error``, ``parse_valid_tool_call`` and
    ``tool_execution_success``."""


class AdapterManifest(Document):
    """What PEFT's files do not say."""

    schema_version: Literal[1] = 1
    base_digest: str
    """SHA-256 of the base model's directory, as in recipes located by content."""
    base_revision: str | None = None
    """Commit of the base on the Hub, where it came from there."""
    tokenizer_digest: str
    """Content digest of the tokenizer that it was trained with."""
    origin: dict[str, Any]
    """The run that trained it: artifact, counters."""
    files: dict[str, FileEntry]
    """Hash and size of PEFT's files."""
    evidence: Evidence | None = None
    """What it was measured to do; null if it never was."""


@dataclass(frozen=True)
class AdapterDirectory:
    """An adapter that can be loaded.

    Attributes:
        path: Its directory, absolute.
        digest: SHA-256 over configuration and weights.
        lora: Rank, scale, targets, biases.
        manifest: Null for an adapter that another system wrote.
    """

    path: Path
    digest: str
    lora: Lora
    manifest: AdapterManifest | None


def open_adapter(path: Path) -> AdapterDirectory:
    """Check that a directory holds a plain LoRA adapter whose bytes are those of its manifest.

    Raises:
        ModelSourceError: A file is missing, altered or truncated, or the adapter is of a kind that
            does not run here.
    """
    if not (path / CONFIG).is_file():
        raise ModelSourceError(
            f"{path} is not an adapter directory: it has no {CONFIG}",
            "Give a directory that PEFT or `opd export-adapter` wrote.",
        )
    lora = read_lora(path / CONFIG)
    check_safetensors(path / WEIGHTS)
    entries = {name: hash_file(path / name) for name in CONTENT}
    manifest = _read_manifest(path / MANIFEST)
    if manifest is not None:
        for name, entry in entries.items():
            if manifest.files.get(name) != entry:
                raise ModelSourceError(
                    f"{path / name} is not the file that {MANIFEST} describes",
                    "The adapter was altered or copied in part; export or download it again.",
                )
    lines = "".join(f"{entry.sha256}  {name}\n" for name, entry in sorted(entries.items()))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    return AdapterDirectory(path.resolve(), digest, lora, manifest)


def read_lora(file: Path) -> Lora:
    """Read PEFT's configuration.

    Raises:
        ModelSourceError: It is no plain LoRA.
    """
    config = read_config(file)
    if config.get("peft_type") != "LORA":
        raise ModelSourceError(
            f"{file}: peft_type is {config.get('peft_type')!r}, and only LORA runs here",
            "Use a LoRA adapter.",
        )
    for key, value in PLAIN.items():
        if config.get(key, value) not in (value, None):
            raise ModelSourceError(
                f"{file}: {key} is {config[key]!r}, which does not run here",
                f"Use an adapter with {key}: {value!r}.",
            )
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.startswith(CHANGES_BASE):
        raise ModelSourceError(
            f"{file}: init_lora_weights is {start!r}, so it belongs to a changed base",
            "Convert it with PEFT to a plain LoRA adapter of the unchanged base.",
        )
    targets = config.get("target_modules")
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        raise ModelSourceError(
            f"{file}: target_modules is {targets!r}, not a list of layer names",
            "Name the layers one by one.",
        )
    try:
        return Lora(
            r=config["r"],
            alpha=config["lora_alpha"],
            target_modules=tuple(sorted(targets)),
            bias=config.get("bias", "none"),
        )
    except (KeyError, ValidationError) as error:
        raise ModelSourceError(
            f"{file} describes no LoRA adapter: {str(error).splitlines()[0]}",
            "Export the adapter again.",
        ) from error


def _read_manifest(file: Path) -> AdapterManifest | None:
    if not file.is_file():
        return None
    try:
        return AdapterManifest.model_validate_json(read_file(file))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ModelSourceError(
            f"{file}: {field or 'the document'}: {first['msg']}",
            "Export the adapter again, or remove the manifest and lose its evidence.",
        ) from error
