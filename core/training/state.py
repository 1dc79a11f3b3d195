"""A student between two optimizer steps: weights, optimizer memory, counters. It is the checkpoint.

On disk: ``trainable.safetensors``, ``optimizer.safetensors`` and ``state.json``. The JSON names the
SHA-256 of the other two, so a file that is cut off or belongs elsewhere is refused before a model
is touched. Sampling noise is counted, not carried, hence there is no generator state to keep.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialize_tensors
from torch import Tensor

from core.artifacts.filesystem import read_file, replace_file
from core.errors import StoreError, StoreSchemaError
from core.models.backend import Backend
from core.training.optimizer import NO_MOMENTS, Moments

SCHEMA_VERSION = 1
TRAINABLE, OPTIMIZER, STATE = "trainable.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class Counters:
    """What has happened to a student so far."""

    parameter_version: int = 0
    """Committed optimizer steps since the initial weights: names this version of the student."""
    rollout_policy_version: int = 0
    """Parameter version that sampled the newest episodes it was trained on."""
    optimizer_step: int = 0
    """Steps of the current schedule: decides the learning rate."""
    task_cursor: int = 0
    """Tasks of the shuffled order that were used."""
    cycle: int = 0
    """Completed cycles."""
    selected_tokens_spent: int = 0
    """Selected positions that were trained on."""


@dataclass(frozen=True)
class StudentState:
    """Everything that the next step depends on; immutable, so that no step can be applied twice."""

    tensors: Mapping[str, Tensor]
    """Trainable parameters by name, on the CPU."""
    moments: Moments = NO_MOMENTS
    """Memory of the optimizer."""
    counters: Counters = Counters()

    def digest(self) -> str:
        """Return the SHA-256 of names, dtypes, shapes and bytes of the trainable parameters."""
        return tensors_digest(self.tensors)

    def save(self, directory: Path) -> None:
        """Write the three files into an existing directory.

        Raises:
            StoreError: A file cannot be written.
        """
        moments = {f"exp_avg.{name}": t for name, t in self.moments.exp_avg.items()}
        moments |= {f"exp_avg_sq.{name}": t for name, t in self.moments.exp_avg_sq.items()}
        blobs = {TRAINABLE: _serialize(self.tensors), OPTIMIZER: _serialize(moments)}
        document = {
            "kind": "student_state",
            "schema_version": SCHEMA_VERSION,
            "counters": asdict(self.counters),
            "moments_step": self.moments.step,
            "digest": self.digest(),
            "sha256": {name: hashlib.sha256(blob).hexdigest() for name, blob in blobs.items()},
        }
        blobs[STATE] = json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode()
        for name, blob in blobs.items():
            replace_file(directory / name, [blob])


def initial_state(backend: Backend) -> StudentState:
    """Return the state of a model that was never trained."""
    return StudentState(tensors=copy_trainable(backend))


def copy_trainable(backend: Backend) -> dict[str, Tensor]:
    """Return a copy of the trainable parameters on the CPU."""
    return {
        name: parameter.detach().to("cpu", copy=True)
        for name, parameter in backend.trainable().items()
    }


def load_state(directory: Path) -> StudentState:
    """Read what ``StudentState.save`` wrote; every bit returns.

    Raises:
        StoreSchemaError: A newer version of this system wrote it.
        StoreError: A file is missing, cut off, altered, or not a student state.
    """
    document = _read_document(directory / STATE)
    tensors = _read_tensors(directory / TRAINABLE, document)
    moments = _read_tensors(directory / OPTIMIZER, document)
    if tensors_digest(tensors) != document["digest"]:
        raise _damaged(directory / TRAINABLE, "its tensors are not those of state.json")
    return StudentState(
        tensors=tensors,
        moments=Moments(
            step=document["moments_step"],
            exp_avg=_below("exp_avg.", moments),
            exp_avg_sq=_below("exp_avg_sq.", moments),
        ),
        counters=Counters(**document["counters"]),
    )


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over sorted names with dtype, shape and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(
            tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def _serialize(tensors: Mapping[str, Tensor]) -> bytes:
    return serialize_tensors({name: tensor.contiguous() for name, tensor in tensors.items()})


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_file(path))
        kind, version = document["kind"], document["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, "it is not the description of a student state") from error
    if kind != "student_state":
        raise _damaged(path, f"it describes a {kind!r}")
    if version != SCHEMA_VERSION:
        raise StoreSchemaError(
            f"{path} has schema version {version}; this version reads {SCHEMA_VERSION}",
            "Update opdflow, or train the state again.",
        )
    names = {field.name for field in fields(Counters)}
    complete = {"counters", "moments_step", "digest", "sha256"} <= set(document)
    if not complete or set(document["counters"]) != names:
        raise _damaged(path, "a field is missing or unknown")
    return document


def _read_tensors(path: Path, document: Mapping[str, Any]) -> dict[str, Tensor]:
    blob = read_file(path)
    if hashlib.sha256(blob).hexdigest() != document["sha256"].get(path.name):
        raise _damaged(path, "it is cut off, altered, or of another state")
    try:
        return parse_tensors(blob)
    except SafetensorError as error:
        raise _damaged(path, "it is not a safetensors file") from error


def _damaged(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"{path} cannot be loaded: {reason}",
        "Nothing was loaded. Remove the artifact's directory and run again to rebuild it.",
    )
