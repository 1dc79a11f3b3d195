"""A student between two optimizer steps: weights, optimizer memory, counters. It is the checkpoint.

On disk: ``trainable.safetensors``, ``optimizer.safetensors`` and ``state.json``. The JSON names the
SHA-256 of the other two, so a file that is cut off or belongs elsewhere is refused before a model
is touched. Sampling noise is counted, not carried, hence there is no generator state to keep.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from core.models.backend import Backend
from core.models.tensor_files import (
    damaged,
    load_described,
    load_description,
    save_described,
    tensors_digest,
)
from core.training.optimizer import NO_MOMENTS, Moments

KIND = "student_state"
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
    """Steps that the present schedule has counted. It is kept for the reader: the learning rate
    follows from ``ScheduleSpec.first_step``, which the recipe gives each cycle."""
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
        moments = {
            f"{kind}.{name}": tensor
            for kind, by_name in self.moments.tensors.items()
            for name, tensor in by_name.items()
        }
        document = {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "counters": asdict(self.counters),
            "moments_step": self.moments.step,
            "digest": self.digest(),
        }
        save_described(directory, STATE, document, {TRAINABLE: self.tensors, OPTIMIZER: moments})


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
    document = _describe(directory)
    tensors = load_described(directory / TRAINABLE, document)
    moments = load_described(directory / OPTIMIZER, document)
    if tensors_digest(tensors) != document["digest"]:
        raise damaged(directory / TRAINABLE, "its tensors are not those of state.json")
    return StudentState(
        tensors=tensors,
        moments=Moments(step=document["moments_step"], tensors=_by_kind(moments)),
        counters=Counters(**document["counters"]),
    )


def read_summary(directory: Path) -> tuple[str, Counters]:
    """Return the digest of a stored state and its counters, without reading a tensor.

    Raises:
        StoreSchemaError: A newer version of this system wrote it.
        StoreError: Its description is missing or damaged.
    """
    document = _describe(directory)
    return document["digest"], Counters(**document["counters"])


def _describe(directory: Path) -> dict[str, Any]:
    path = directory / STATE
    document = load_description(path, KIND, SCHEMA_VERSION, {"counters", "moments_step", "digest"})
    if set(document["counters"]) != {field.name for field in fields(Counters)}:
        raise damaged(path, "a counter is missing or unknown")
    return document


def _by_kind(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition(".")
        found.setdefault(kind, {})[name] = tensor
    return found
