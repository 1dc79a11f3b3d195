"""Low-rank adapters through peft, initialised from a private generator.

An adapted linear layer computes ``W x + (alpha / r) B A x`` (Hu et al. 2021,
https://arxiv.org/abs/2106.09685, equation 3). B starts at zero, so a fresh adapter changes nothing.
"""

import warnings
from typing import Any

import torch
from torch import nn

from core.errors import BackendError, MissingDependencyError
from core.models.adapter_dropout import install
from core.models.bitsandbytes_library import quieten_bitsandbytes
from core.models.loading import first_line
from core.recipe.schema.adapters import Lora
from core.seeding import derive_seed

DEFAULT = "default"
"""What peft calls an adapter that has no other name."""


def make_trainable(model: Any, lora: Lora | None, seed: int, dtype: torch.dtype) -> None:
    """Say which parameters of a loaded model are trained, in place.

    Args:
        model: A transformers decoder.
        lora: None freezes every weight; an enabled adapter is trained alone; a disabled one trains
            every weight.
        seed: Seed of the adapter's initial values.
        dtype: Arithmetic of the weights.

    Raises:
        BackendError: No layer is called like any of the targets, or every weight would be trained
            in an arithmetic that loses small steps.
        MissingDependencyError: peft is not installed.
    """
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.requires_grad_(requires_grad=lora is not None)
    if lora is not None and lora.enabled:
        attach_lora(model, lora, seed)
    elif lora is not None and dtype is not torch.float32:
        name = str(dtype).removeprefix("torch.")
        raise BackendError(
            f"models.student.dtype={name} cannot train every weight: small steps are lost",
            "Set models.student.dtype=float32, or models.student.lora.enabled=true.",
        )


def attach_lora(model: Any, lora: Lora, seed: int, adapter: str = DEFAULT) -> None:
    """Put an adapter into ``model`` in place; afterwards only the adapter requires gradients.

    Args:
        model: A transformers decoder.
        lora: Rank, scale, dropout, target layers and biases.
        seed: Seed of A's initial values; every matrix has a stream of its own, so that they do not
            depend on the order of layers. No global generator is read or left changed.
        adapter: Its name, where a base has several.

    Raises:
        BackendError: No layer is called like any of the targets.
        MissingDependencyError: peft is not installed.
    """
    # peft imports bitsandbytes wherever it is installed.
    quieten_bitsandbytes()
    try:
        import peft
    except ImportError as error:
        raise MissingDependencyError(
            "models.student.lora needs peft, which is not installed",
            "Run `pip install 'opdflow[train]'`, or set models.student.lora.enabled=false.",
        ) from error
    config = peft.LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        target_modules=list(lora.target_modules),
        bias=lora.bias,
    )
    try:
        # peft draws its own values first; the fork gives the global generator back untouched.
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # Several adapters on one model are meant.
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            peft.inject_adapter_in_model(config, model, adapter_name=adapter)
    except ValueError as error:
        raise BackendError(
            f"models.student.lora.target_modules does not fit this model: {first_line(error)}",
            "Name linear layers of the decoder, such as q_proj or down_proj.",
        ) from error
    install(model, lora.dropout, adapter)
    initialise(model, seed, adapter)


@torch.no_grad()
def initialise(model: nn.Module, seed: int, adapter: str = DEFAULT) -> None:
    """Draw A uniformly within ±1/sqrt(fan-in), the usual start of a linear layer; set B to zero.

    Both become float32 whatever the base is: bfloat16 would swallow steps below 1/256 of a weight.
    """
    for name, parameter in model.named_parameters():
        if f".{adapter}." not in name:
            continue
        if ".lora_" in name:
            parameter.data = parameter.data.float()
        if ".lora_A." in name:
            generator = torch.Generator().manual_seed(
                derive_seed(seed, "lora", plain_name(name, adapter))
            )
            unit = torch.rand(parameter.shape, generator=generator)
            parameter.copy_((2 * unit - 1) * parameter.shape[1] ** -0.5)
        elif ".lora_B." in name:
            parameter.zero_()


def plain_name(name: str, adapter: str = DEFAULT) -> str:
    """Return a parameter's name without peft's scaffolding: stable, and equal with and without it.

    ``…q_proj.base_layer.weight`` becomes ``…q_proj.weight``, and ``…q_proj.lora_A.default.weight``
    becomes ``…q_proj.lora_A.weight``.
    """
    return name.replace(".base_layer.", ".").replace(f".{adapter}.", ".")
