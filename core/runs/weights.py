"""How far the trained weights of two runs are apart: on a GPU equal requests may differ in bits."""

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError, deserialize

from core.artifacts.filesystem import read_file
from core.errors import InputError
from core.runs.checkpoints import REMEDY, open_checkpoint
from core.runs.layout import CHECKPOINTS, FINAL
from core.runs.reading import RunDirectory

WEIGHTS = "trainable.safetensors"
_FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16}


class WeightDifference(BaseModel):
    """Distance of all trained weights of one checkpoint, as one vector."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    checkpoint: str
    cosine: float
    """Of the angle between both vectors."""
    relative_l2: float
    """Length of the difference over the length of the first."""
    largest: float
    """Largest difference of one weight."""
    unequal: int
    """Weights that are not equal."""
    weights: int


def compare_weights(here: RunDirectory, there: RunDirectory) -> list[WeightDifference]:
    """Compare the checkpoints that two runs have in common, the final one last.

    Checkpoints whose tensors have other names or shapes belong to other models and are left out.

    Raises:
        InputError: A checkpoint is missing, altered or no safetensors file.
    """
    shared = sorted(_names(here) & _names(there) - {FINAL})
    names = [*shared, *([FINAL] if FINAL in _names(here) & _names(there) else [])]
    found = []
    for name in names:
        left, right = (_tensors(run.path, name) for run in (here, there))
        if {key: value.shape for key, value in left.items()} == {
            key: value.shape for key, value in right.items()
        }:
            found.append(_difference(name, left, right))
    return found


def _names(run: RunDirectory) -> set[str]:
    """Return the checkpoints of a run, by their directories."""
    prefix, suffix = f"{CHECKPOINTS}/", f"/{WEIGHTS}"
    listed = run.manifest.files
    return {
        name.removeprefix(prefix).removesuffix(suffix)
        for name in listed
        if name.startswith(prefix) and name.endswith(suffix)
    }


def _tensors(run: Path, name: str) -> dict[str, np.ndarray]:
    path = open_checkpoint(run, name) / WEIGHTS
    try:
        return {key: _array(value) for key, value in deserialize(read_file(path))}
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} holds no weights that can be read: {error}", REMEDY) from error


def _array(tensor: dict[str, Any]) -> np.ndarray:
    """Return a tensor as float64; NumPy has no bfloat16, which is the upper half of a float32."""
    kind, data = tensor["dtype"], tensor["data"]
    if kind == "BF16":
        halves = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        flat = halves.view(np.float32)
    else:
        flat = np.frombuffer(data, dtype=np.dtype(_FLOATS[kind]).newbyteorder("<"))
    return flat.astype(np.float64).reshape(tensor["shape"])


def _difference(
    name: str, left: dict[str, np.ndarray], right: dict[str, np.ndarray]
) -> WeightDifference:
    a, b = (np.concatenate([side[key].ravel() for key in sorted(left)]) for side in (left, right))
    lengths = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    apart = a - b
    product = lengths[0] * lengths[1]
    equal = not apart.any()
    return WeightDifference(
        checkpoint=name,
        cosine=1.0 if equal else float(a @ b) / product if product else 0.0,
        relative_l2=float(np.linalg.norm(apart)) / max(lengths[0], np.finfo(np.float64).tiny),
        largest=float(np.abs(apart).max(initial=0.0)),
        unequal=int(np.count_nonzero(apart)),
        weights=int(a.size),
    )
