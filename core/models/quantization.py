"""Frozen weights in 4 or 8 bits through bitsandbytes, on CUDA and on a CPU, with one arithmetic.

bitsandbytes has faster inference kernels for modules in eval mode on a CPU, and both break training
without an error. An NF4 layer re-packs its weights at the first eval forward; every later backward
pass goes through a kernel without a derivative, and gradients point elsewhere (cosine 0.24 to the
truth, measured). An int8 layer rounds activations in eval mode and not in train mode, so that the
policy that samples isn't the one that is trained. ``settle`` closes both doors; ``gradient_check``
proves it for the model at hand.

NF4: Dettmers et al. 2023 (https://arxiv.org/abs/2305.14314). int8: Dettmers et al. 2022
(https://arxiv.org/abs/2208.07339), without its outlier columns: which columns are outliers depends
on all rows of a batch, so an episode would depend on its company.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.errors import BackendError
from core.models.bitsandbytes_library import import_bitsandbytes

LEAST_COSINE = 0.98
"""Smallest cosine between a gradient and that of the dequantised twin. Rounding of bfloat16 leaves
0.9999, 8-bit activations on CUDA less; a wrong kernel left 0.24."""


@dataclass(frozen=True)
class GradientCheck:
    """How far gradients through quantised layers are from those through their dequantised twins."""

    cosine: float
    """Cosine between the two gradients, all trainable parameters together."""
    relative_error: float
    """L2 norm of their difference over that of the twin's."""
    tensors: int
    """Trainable parameters that were compared."""


def loading_arguments(kind: str, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """Return what ``from_pretrained`` needs to quantise a dense model while it loads.

    Args:
        kind: ``nf4`` (with double quantisation) or ``int8``.
        dtype: Arithmetic of the products.
        device: Where the weights live.

    Raises:
        MissingDependencyError: bitsandbytes is not installed.
    """
    import_bitsandbytes(f"quantization: {kind}", "set quantization: none")
    from transformers import BitsAndBytesConfig

    if kind == "int8":
        config = BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    else:
        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    return {"quantization_config": config, "device_map": {"": str(device)}}


def quantised_layers(model: nn.Module) -> dict[str, Any]:
    """Return the quantised linear layers by name, those inside adapters included."""
    import bitsandbytes

    kinds = (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, kinds)}


def settle(model: nn.Module, *, prepare: bool) -> None:
    """Give every quantised layer one arithmetic for sampling, scoring and training, in place.

    Args:
        model: In eval mode; only 8-bit layers leave it, and they have no dropout.
        prepare: Cast what isn't quantised (norms, embeddings, head) to float32.

    Raises:
        BackendError: The model has no layer that could be quantised.
    """
    layers = quantised_layers(model)
    if not layers:
        raise BackendError(
            "quantisation found no linear layer in this model", "Set quantization: none."
        )
    for layer in layers.values():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
        else:
            layer.train()
    if prepare:
        quantised = {id(layer.weight) for layer in layers.values()}
        for parameter in model.parameters():
            if id(parameter) not in quantised and parameter.is_floating_point():
                parameter.data = parameter.data.float()


def quantisation_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the scales that turn the stored integers into weights, by name."""
    found: dict[str, Tensor] = {}
    for name, layer in quantised_layers(model).items():
        for key, value in _scales(layer).items():
            if isinstance(value, Tensor):
                found[f"{name.removesuffix('.base_layer')}.weight.{key}"] = value
    return found


def _scales(layer: Any) -> Mapping[str, Any]:
    if hasattr(layer, "state"):
        return {"SCB": layer.weight.SCB if layer.state.SCB is None else layer.state.SCB}
    return layer.weight.quant_state.as_dict(packed=True)


def dequantised_weight(layer: Any) -> Tensor:
    """Return the dense ``[out, in]`` weights that a quantised layer stands for."""
    if not hasattr(layer, "state"):
        from bitsandbytes.functional import dequantize_4bit

        return dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    return layer.weight.data.float() * (_scales(layer)["SCB"].float()[:, None] / 127)


class _DenseProduct(torch.autograd.Function):
    """``x Wᵀ`` with the dense weights made again for the backward pass, so that none are kept."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Callable[[], Tensor]) -> Tensor:
        """Multiply ``[…, in]`` inputs with the weights."""
        ctx.weight = weight
        return functional.linear(inputs, weight().to(inputs.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the inputs; the weights are frozen."""
        (outer,) = gradients
        return outer @ ctx.weight().to(outer.dtype), None


@contextlib.contextmanager
def dequantised(model: nn.Module) -> Iterator[None]:
    """Compute quantised layers with dense weights and torch's own products meanwhile."""
    layers = quantised_layers(model)

    def dense(layer: Any) -> Callable[[Tensor], Tensor]:
        def forward(inputs: Tensor) -> Tensor:
            output = _DenseProduct.apply(inputs, lambda: dequantised_weight(layer))
            return output if layer.bias is None else output + layer.bias.to(output.dtype)

        return forward

    for layer in layers.values():
        layer.forward = dense(layer)
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward


def gradient_check(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], loss: Callable[[], Tensor]
) -> GradientCheck:
    """Compare the gradients of a loss with those of the dequantised twin.

    Args:
        model: Holds the quantised layers.
        parameters: What is trained; their ``grad`` is None before and after.
        loss: Runs the model and returns a scalar.

    Raises:
        BackendError: The gradients disagree: training would follow a wrong direction.
    """
    own = _gradient(parameters, loss)
    with dequantised(model):
        twin = _gradient(parameters, loss)
    cosine = float(functional.cosine_similarity(own, twin, dim=0))
    error = float((own - twin).norm() / twin.norm())
    found = GradientCheck(cosine=cosine, relative_error=error, tensors=len(parameters))
    # A comparison with NaN is false, and NaN must be refused.
    if not cosine >= LEAST_COSINE:
        raise BackendError(
            f"gradients through the quantised layers are not those of their weights: cosine "
            f"{cosine:.3f} to the dequantised twin's",
            "Set models.student.quantization: none, or install another version of bitsandbytes.",
        )
    return found


def _gradient(parameters: Mapping[str, nn.Parameter], loss: Callable[[], Tensor]) -> Tensor:
    gradients = torch.autograd.grad(loss(), list(parameters.values()), allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).detach().double().flatten()
            for p, g in zip(parameters.values(), gradients, strict=True)
        ]
    )
