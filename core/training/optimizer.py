"""AdamW over named parameters, with moments that leave and enter as plain tensors."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.errors import BackendError, NumericsError
from core.models.bitsandbytes_library import import_bitsandbytes
from core.recipe.training_specs import OptimizerSpec


@dataclass(frozen=True)
class Moments:
    """AdamW's memory; empty before the first step."""

    step: int
    """Steps that the moments have seen."""
    tensors: Mapping[str, Mapping[str, Tensor]]
    """By kind (``exp_avg`` and ``exp_avg_sq``; in 8 bits codes, code books and scales), then by
    parameter name."""


NO_MOMENTS = Moments(step=0, tensors={})


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101) with clipping.

    ``adamw8bit`` keeps the moments of tensors of 4,096 values or more in 8 bits, in blocks with a
    scale each (Dettmers et al. 2021, https://arxiv.org/abs/2110.02861).

    Args:
        parameters: What is trained, by name.
        spec: Its settings.
        moments: Memory to continue from; it is copied.

    Raises:
        BackendError: There is nothing to train, or the moments belong to other parameters or to
            another optimizer.
        MissingDependencyError: 8-bit moments need bitsandbytes, which is not installed.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], spec: OptimizerSpec, moments: Moments
    ) -> None:
        if not parameters:
            raise BackendError(
                "the model has 0 trainable parameters",
                "Train a student with an adapter or with full weights; a teacher is frozen.",
            )
        self._max_grad_norm = spec.max_grad_norm
        self._parameters = dict(parameters)
        self._adamw = build_adamw(self._parameters.values(), spec)
        self._restore(moments, eight_bit=spec.name == "adamw8bit")

    def step(self, rate: float) -> float:
        """Clip the gradients and move the parameters once; gradients are cleared.

        Args:
            rate: Learning rate of this step.

        Returns:
            Gradient norm before clipping.

        Raises:
            NumericsError: The gradient norm is not finite; nothing was moved.
        """
        parameters = list(self._parameters.values())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        norm = float(nn.utils.clip_grad_norm_(parameters, self._max_grad_norm))
        if not math.isfinite(norm):
            raise NumericsError(
                f"the gradient norm is {norm}",
                "The step was not committed. Lower the learning rate or the loss temperature.",
            )
        for group in self._adamw.param_groups:
            group["lr"] = rate
        self._adamw.step()
        self.clear()
        return norm

    def clear(self) -> None:
        """Forget all gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def moments(self) -> Moments:
        """Return a copy of the memory, on the host: between updates it takes no device memory."""
        memory = {name: self._adamw.state.get(p) for name, p in self._parameters.items()}
        steps = {int(entry["step"]) for entry in memory.values() if entry}
        if not steps:
            return NO_MOMENTS
        tensors: dict[str, dict[str, Tensor]] = {}
        for name, entry in memory.items():
            for kind, value in (entry or {}).items():
                if kind != "step" and isinstance(value, Tensor):
                    tensors.setdefault(kind, {})[name] = value.to("cpu", copy=True)
        return Moments(step=steps.pop(), tensors=tensors)

    def _restore(self, moments: Moments, *, eight_bit: bool) -> None:
        if moments.step == 0:
            return
        names = set(self._parameters)
        known = {name for by_name in moments.tensors.values() for name in by_name}
        if known != names:
            raise BackendError(
                f"the optimizer moments are of other parameters: {min(known ^ names)!r}",
                "Continue from a state that this model wrote.",
            )
        if ("state1" in moments.tensors) != eight_bit:
            raise BackendError(
                "the optimizer moments were written by another train.optimizer",
                "Continue with the optimizer of that run, or start from weights only.",
            )
        for name, parameter in self._parameters.items():
            # torch counts steps in a tensor, bitsandbytes in an integer.
            step = torch.tensor(float(moments.step), device=parameter.device)
            self._adamw.state[parameter] = {
                "step": moments.step if eight_bit else step,
                **{
                    kind: by_name[name].to(parameter.device, copy=True)
                    for kind, by_name in moments.tensors.items()
                    if name in by_name
                },
            }


def build_adamw(parameters: Iterable[nn.Parameter], spec: OptimizerSpec) -> torch.optim.Optimizer:
    """Return torch's AdamW, or that of bitsandbytes with 8-bit moments.

    Raises:
        MissingDependencyError: bitsandbytes is needed and not installed.
    """
    settings = {"betas": spec.betas, "eps": spec.eps, "weight_decay": spec.weight_decay}
    if spec.name == "adamw":
        return torch.optim.AdamW(list(parameters), fused=True, **settings)
    import_bitsandbytes("train.optimizer: adamw8bit", "set train.optimizer: adamw")
    from bitsandbytes.optim import AdamW8bit

    return AdamW8bit(list(parameters), **settings)
