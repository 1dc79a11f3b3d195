"""Adapter matrices between PEFT's names and ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from core.errors import ModelSourceError
from core.models.adapter_directory import WEIGHTS

PEFT_PREFIX = "base_model.model."


def peft_name(name: str, targets: Sequence[str]) -> str:
    """Return what PEFT calls a parameter in its files.

    A bias of an adapted layer lies below PEFT's wrapper, any other bias where it always was.
    """
    parts = name.split(".")
    if parts[-1] == "bias" and parts[-2] in targets:
        parts.insert(-1, "base_layer")
    return PEFT_PREFIX + ".".join(parts)


def to_peft(tensors: Mapping[str, Tensor], targets: Sequence[str]) -> dict[str, Tensor]:
    """Return trained tensors by PEFT's names, ready to be written."""
    return {peft_name(name, targets): tensor.contiguous() for name, tensor in tensors.items()}


def load_adapter_tensors(path: Path) -> dict[str, Tensor]:
    """Read an adapter's tensors by our names.

    Raises:
        ModelSourceError: They cannot be read, or one is no part of an adapter of a whole model.
    """
    file = path / WEIGHTS
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelSourceError(
            f"{file} cannot be read: {error}", "Export or download the adapter again."
        ) from error
    foreign = [name for name in tensors if not name.startswith(PEFT_PREFIX)]
    if foreign:
        raise ModelSourceError(
            f"{file}: {foreign[0]!r} is not called as PEFT calls a tensor of a causal decoder",
            "Export the adapter with PEFT's save_pretrained.",
        )
    return {
        name.removeprefix(PEFT_PREFIX).replace(".base_layer.", "."): tensor
        for name, tensor in tensors.items()
    }
