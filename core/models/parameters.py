"""Named parameters as a whole: other values for them, or none at all."""

from collections.abc import Mapping

import torch
from torch import Tensor

from core.errors import BackendError


@torch.no_grad()
def overwrite(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Overwrite parameters in place.

    Args:
        own: What is written to, by name.
        tensors: The values; names and shapes must be the same.

    Raises:
        BackendError: Names or shapes differ; nothing was written.
    """
    expected = {name: tuple(p.shape) for name, p in own.items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != given:
        differing = sorted(set(expected.items()) ^ set(given.items()))
        raise BackendError(
            f"the tensors do not fit this model: {differing[0][0]!r} differs in name or shape",
            "Load tensors that were trained on the same base with the same adapter settings.",
        )
    for name, tensor in tensors.items():
        own[name].copy_(tensor)
