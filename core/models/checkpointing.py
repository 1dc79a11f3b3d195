"""Recomputing a layer in the backward pass in place of keeping its activations.

Chen et al. 2016 (https://arxiv.org/abs/1604.06174). The non-re-entrant kind: it works with frozen
inputs, and the re-entrant one has been seen to give one adapter's gradients to another. Memory
moves and no bit does.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer as RecomputableLayer

from core.errors import BackendError

OPTIONS = {"use_reentrant": False, "preserve_rng_state": False}
"""Nothing here draws from a global generator, so there is none to save."""


def checkpointed_layers(model: nn.Module) -> list[nn.Module]:
    """Prepare a transformers model and return the layers that ``recomputing`` acts on.

    Raises:
        BackendError: None of its layers can be recomputed.
    """
    # Not through the model's own switch, which also makes frozen embeddings ask for gradients.
    found: list[Any] = [each for each in model.modules() if isinstance(each, RecomputableLayer)]
    if not found:
        raise BackendError(
            "no layer of this model can be recomputed",
            "Set models.student.gradient_checkpointing: false.",
        )
    for layer in found:
        layer._gradient_checkpointing_func = partial(checkpoint, **OPTIONS)
        layer.gradient_checkpointing = True
    return found


@contextlib.contextmanager
def recomputing(layers: list[nn.Module]) -> Iterator[None]:
    """Keep no activations inside these layers for the forward pass in here.

    transformers does so for layers in train mode. The flag of the layer alone is set: what lies in
    it stays in eval mode, so that nothing is dropped and 4-bit weights keep their arithmetic.
    """
    wanted = layers if torch.is_grad_enabled() else []
    for layer in wanted:
        layer.training = True
    try:
        yield
    finally:
        for layer in wanted:
            layer.training = False
