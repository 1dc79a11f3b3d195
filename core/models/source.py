"""A model directory: found, whole and of a family that we run, before anything heavy is imported.

Reads JSON files and safetensors headers only, so a recipe can be refused, planned and keyed without
torch. Pickled weights are never read: they could execute code.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ModelSourceError

FAMILIES = {
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "llama": "LlamaForCausalLM",
    "phi": "PhiForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""``model_type`` of the decoders that run here, and the class that carries their output head."""

SLIDING = "sliding_attention"
"""Name of a layer that sees the last positions only."""

WINDOWED = ("gemma2", "gemma3_text")
"""Families with local layers that run here: their forward pass takes a mask per kind of layer."""

LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")
"""Rotary embeddings whose angles depend on the longest row of a batch, so on an episode's company.
"""

_NOT_SAFETENSORS = (
    OSError, ValueError, struct.error, AttributeError, KeyError, TypeError, RecursionError,
)  # fmt: skip

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""Any one of these holds a vocabulary."""


@dataclass(frozen=True)
class ModelSource:
    """A directory that can be loaded.

    Attributes:
        path: The directory, absolute.
        model_type: A key of ``FAMILIES``; anything where the model brings its own code.
        weight_files: Names of its safetensors files, sorted.
    """

    path: Path
    model_type: str
    weight_files: tuple[str, ...]


def inspect_source(path: Path, *, trust_remote_code: bool = False) -> ModelSource:
    """Check that a directory holds a decoder that we run, whole weights and a tokenizer.

    Args:
        path: The directory.
        trust_remote_code: Whether Python code that ships with the weights may run.

    Raises:
        ModelSourceError: Something is missing, truncated, pickled or of another family, or brings
            code that is not trusted.
    """
    if not path.is_dir():
        raise ModelSourceError(
            f"{path} is not a model directory",
            "Give a directory with config.json, tokenizer.json and model.safetensors; "
            "`opd import-gguf FILE --out DIR` makes one from a GGUF file.",
        )
    config = read_config(path / "config.json")
    if ships_code(config):
        refuse_code(path / "config.json", trusted=trust_remote_code)
        model_type = str(config.get("model_type"))
    else:
        model_type = _family(path, config)
    _refuse_unrunnable(path, config)
    weight_files = _weight_files(path)
    for name in weight_files:
        check_safetensors(path / name)
    if not any((path / name).is_file() for name in TOKENIZER_FILES):
        raise ModelSourceError(
            f"{path} has weights but no tokenizer", "Copy tokenizer.json of the model beside them."
        )
    return ModelSource(path.resolve(), model_type, weight_files)


def ships_code(config: dict[str, Any]) -> bool:
    """Return whether a configuration names Python files of its own to run."""
    return bool(config.get("auto_map"))


def refuse_code(file: Path, *, trusted: bool) -> None:
    """Refuse a directory that wants to run its own code, unless the recipe trusts it.

    Raises:
        ModelSourceError: It is not trusted.
    """
    if not trusted:
        raise ModelSourceError(
            f"{file} asks to run Python code that ships with the model (auto_map)",
            "Read that code; then set trust_remote_code: true for this model, or use another one.",
        )


def refuse_kernel(path: Path, attn_implementation: str) -> None:
    """Refuse an attention kernel that would leave out a squashing of the scores (Gemma 2).

    Raises:
        ModelSourceError: The model needs ``eager``.
    """
    config = read_config(path / "config.json")
    default = 50.0 if config.get("model_type") == "gemma2" else None
    if config.get("attn_logit_softcapping", default) and attn_implementation != "eager":
        raise ModelSourceError(
            f"{path} squashes attention scores, which attn_implementation: {attn_implementation} "
            "cannot",
            "Set attn_implementation: eager for this model.",
        )


def read_config(file: Path) -> dict[str, Any]:
    """Read one JSON object of a model directory.

    Raises:
        ModelSourceError: The file is missing or not a JSON object.
    """
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelSourceError(
            f"{file.parent} has no {file.name}", "Give the directory that holds the model's files."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelSourceError(
            f"{file} cannot be read as JSON: {error}", "Copy or download the model again."
        ) from error
    if not isinstance(config, dict):
        raise ModelSourceError(f"{file} is not a JSON object", "Copy or download the model again.")
    return config


def check_safetensors(file: Path) -> None:
    """Check from header and size that no byte of a safetensors file is missing.

    Raises:
        ModelSourceError: The file is missing, truncated or not in this format.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            (header_bytes,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(header_bytes, size)))
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        end = 8 + header_bytes + max((entry["data_offsets"][1] for entry in tensors), default=0)
    except _NOT_SAFETENSORS as error:
        raise ModelSourceError(
            f"{file} is not a readable safetensors file: {error}",
            "Copy or download the weights again.",
        ) from error
    if end != size:
        raise ModelSourceError(
            f"{file} has {size} bytes where its header promises {end}: it is truncated",
            "Copy or download the weights again.",
        )


def _family(path: Path, config: dict[str, Any]) -> str:
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        named = (config.get("architectures") or [model_type])[0]
        raise ModelSourceError(
            f"{path} is of architecture {named}, which does not run here",
            f"Use a decoder of one of these: {', '.join(FAMILIES.values())}.",
        )
    return str(model_type)


def _refuse_unrunnable(path: Path, config: dict[str, Any]) -> None:
    """Refuse what the engine's rule, slots 0 to p or the last of them, does not describe."""
    windowed = config.get("use_sliding_window") or SLIDING in (config.get("layer_types") or ())
    if windowed and config.get("model_type") not in WINDOWED:
        raise ModelSourceError(
            f"{path} uses sliding-window attention, which does not run here",
            "Use a model whose layers all attend to the whole sequence, or a Gemma.",
        )
    if config.get("use_bidirectional_attention"):
        raise ModelSourceError(
            f"{path} attends to later tokens (use_bidirectional_attention): it is no decoder",
            "Use a model that generates text.",
        )
    for kind in _rope_kinds(config):
        if kind in LENGTH_DEPENDENT_ROPE:
            raise ModelSourceError(
                f"{path} uses {kind} rotary embeddings: an episode would depend on its batch",
                "Use a model with default, linear, llama3 or yarn rotary embeddings.",
            )


def _rope_kinds(config: dict[str, Any]) -> list[Any]:
    """Return the kinds of rotary embeddings; Gemma 3 has one for each kind of layer."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    per_layer = [value for value in rope.values() if isinstance(value, dict)]
    return [each.get("rope_type", each.get("type")) for each in per_layer or [rope]]


def _weight_files(path: Path) -> tuple[str, ...]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        shards = read_config(index).get("weight_map")
        if isinstance(shards, dict) and shards:
            return tuple(sorted({str(name) for name in shards.values()}))
        raise ModelSourceError(f"{index} lists no weights", "Copy or download the model again.")
    if (path / "model.safetensors").is_file():
        return ("model.safetensors",)
    raise ModelSourceError(f"{path} has no safetensors weights", _instead_of_weights(path))


def _instead_of_weights(path: Path) -> str:
    if any(path.glob("*.gguf")):
        return "Turn its GGUF file into a model directory: `opd import-gguf FILE --out DIR`."
    if any(path.glob("*.bin")) or any(path.glob("*.pt*")):
        return "Its weights are pickled and could run code; convert them to safetensors elsewhere."
    return "Give a directory with model.safetensors or model.safetensors.index.json."
