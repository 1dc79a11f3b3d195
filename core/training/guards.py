"""What must hold across the steps of every update: frozen weights stay, trained ones move."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from core.errors import CanaryError
from core.models.backend import Backend


def check_update(
    backend: Backend,
    before: Mapping[str, Tensor],
    frozen_before: str,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse an update that changed frozen weights, or that changed nothing at all.

    Args:
        backend: The model after its steps.
        before: Its trainable tensors before them.
        frozen_before: Digest of what is frozen, before them.
        rows: One metrics row per step.

    Raises:
        CanaryError: A frozen weight changed, or none of the trained ones did.
    """
    if backend.frozen_digest() != frozen_before:
        raise CanaryError(
            "an optimizer step changed weights that are frozen",
            "A parameter is updated outside the list of trained ones; this is a defect, please "
            "report it.",
        )
    pushed = any(row["lr"] > 0 and row["grad_norm"] > 0 for row in rows)
    if pushed and all(_is_same(p, before[name]) for name, p in backend.trainable().items()):
        raise CanaryError(
            f"{len(rows)} optimizer steps with a gradient changed no trained weight",
            "Raise train.learning_rate: steps below the weights' rounding are lost.",
        )


def _is_same(parameter: Tensor, before: Tensor) -> bool:
    return torch.equal(parameter.detach().cpu(), before.cpu())
