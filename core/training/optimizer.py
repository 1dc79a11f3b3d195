"""AdamW over named parameters, with moments that leave and enter as plain tensors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.errors import BackendError, NumericsError
from core.recipe.training_specs import OptimizerSpec


@dataclass(frozen=True)
class Moments:
    """AdamW's memory, by parameter name; empty before the first step."""

    step: int
    """Steps that the moments have seen."""
    exp_avg: Mapping[str, Tensor]
    """Running mean of the gradient."""
    exp_avg_sq: Mapping[str, Tensor]
    """Running mean of its square."""


NO_MOMENTS = Moments(step=0, exp_avg={}, exp_avg_sq={})


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101) with clipping.

    Args:
        parameters: What is trained, by name.
        spec: Its settings.
        moments: Memory to continue from; it is copied.

    Raises:
        BackendError: It is not built, there is nothing to train, or the moments belong to other
            parameters.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], spec: OptimizerSpec, moments: Moments
    ) -> None:
        if spec.name != "adamw":
            raise BackendError(
                f"the optimizer {spec.name} is not built yet", "Use train.optimizer: adamw."
            )
        if not parameters:
            raise BackendError(
                "the model has 0 trainable parameters",
                "Train a student with an adapter or with full weights; a teacher is frozen.",
            )
        self._max_grad_norm = spec.max_grad_norm
        self._parameters = dict(parameters)
        self._adamw = torch.optim.AdamW(
            list(self._parameters.values()),
            betas=spec.betas,
            eps=spec.eps,
            weight_decay=spec.weight_decay,
            fused=True,
        )
        self._restore(moments)

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
        """Return a copy of the memory."""
        memory = {name: self._adamw.state.get(p) for name, p in self._parameters.items()}
        steps = {int(entry["step"]) for entry in memory.values() if entry}
        if not steps:
            return NO_MOMENTS
        return Moments(
            step=steps.pop(),
            exp_avg={name: entry["exp_avg"].clone() for name, entry in memory.items() if entry},
            exp_avg_sq={
                name: entry["exp_avg_sq"].clone() for name, entry in memory.items() if entry
            },
        )

    def _restore(self, moments: Moments) -> None:
        if moments.step == 0:
            return
        names = set(self._parameters)
        if set(moments.exp_avg) != names or set(moments.exp_avg_sq) != names:
            differing = sorted(names ^ set(moments.exp_avg) | names ^ set(moments.exp_avg_sq))
            raise BackendError(
                f"the optimizer moments are of other parameters: {differing[0]!r}",
                "Continue from a state that this model wrote.",
            )
        for name, parameter in self._parameters.items():
            self._adamw.state[parameter] = {
                "step": torch.tensor(float(moments.step), device=parameter.device),
                "exp_avg": moments.exp_avg[name].to(parameter).clone(),
                "exp_avg_sq": moments.exp_avg_sq[name].to(parameter).clone(),
            }
