"""Tensors beside a JSON description that knows their digest.

A file that is cut off, altered or of another artifact is refused before anything is built from it.
Only safetensors and JSON: nothing that is read here can execute code. The files carry no metadata:
the library writes that in the order of a randomised hash map, and all else in a fixed one, so equal
tensors give equal bytes in every process.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialize_tensors
from torch import Tensor

from core.artifacts.codec import parse_strict
from core.artifacts.filesystem import read_file, replace_file
from core.errors import StoreError, StoreSchemaError


def save_described(
    directory: Path,
    description: str,
    document: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Write tensor files and then ``description``, which names the SHA-256 of each.

    Args:
        directory: An existing directory.
        description: File name of the JSON document.
        document: Its content, with ``kind`` and ``schema_version``; strict JSON.
        files: File name -> tensors by name.

    Raises:
        StoreError: A file cannot be written.
    """
    blobs = {name: _serialize(tensors) for name, tensors in files.items()}
    digests = {name: hashlib.sha256(blob).hexdigest() for name, blob in blobs.items()}
    text = json.dumps({**document, "sha256": digests}, indent=1, sort_keys=True, allow_nan=False)
    blobs[description] = text.encode()
    for name, blob in blobs.items():
        replace_file(directory / name, [blob])


def load_description(path: Path, kind: str, version: int, fields: set[str]) -> dict[str, Any]:
    """Read a description.

    Args:
        path: The JSON document.
        kind: What it must describe.
        version: Schema version that is understood.
        fields: Names that it must hold besides ``kind``, ``schema_version`` and ``sha256``.

    Raises:
        StoreSchemaError: Another version wrote it.
        StoreError: It is missing, cut off or of another kind.
    """
    try:
        document = parse_strict(read_file(path).decode())
        found, found_version = document["kind"], document["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, f"it does not describe a {kind}") from error
    if found != kind:
        raise damaged(path, f"it describes a {found!r}, not a {kind}")
    if found_version != version:
        raise StoreSchemaError(
            f"{path} has schema version {found_version}; this version reads {version}",
            "Update opdflow, or rebuild the artifact.",
        )
    if set(document) != {"kind", "schema_version", "sha256", *fields}:
        raise damaged(path, "a field is missing or unknown")
    return document


def load_described(path: Path, document: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read one tensor file that ``document`` describes.

    Raises:
        StoreError: It is missing, or its bytes are not those that were described.
    """
    blob = read_file(path)
    if hashlib.sha256(blob).hexdigest() != document["sha256"].get(path.name):
        raise damaged(path, "it is cut off, altered, or of another artifact")
    try:
        return parse_tensors(blob)
    except SafetensorError as error:
        raise damaged(path, "it is not a safetensors file") from error


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over sorted names with dtype, shape and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(_flat_bytes(tensor))
    return digest.hexdigest()


def damaged(path: Path, reason: str) -> StoreError:
    """Return the refusal of a file, with what to do."""
    return StoreError(
        f"{path} cannot be loaded: {reason}",
        "Nothing was loaded. Remove the artifact's directory and run again to rebuild it.",
    )


def _serialize(tensors: Mapping[str, Tensor]) -> bytes:
    return serialize_tensors({name: tensor.contiguous() for name, tensor in tensors.items()})


def _flat_bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def parameter_digest(parameters: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over sorted names, types, shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for name, parameter in sorted(parameters.items()):
        tensor = parameter.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        # numpy has no bfloat16: hash the bytes.
        digest.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
