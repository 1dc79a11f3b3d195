"""AdamW over named parameters, with moments that leave and enter as plain tensors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.errors import BackendError, NumericsError
from core.training.schedule import ScheduleKind, learning_rate


@dataclass(frozen=True)
class OptimizerSpec:
    """What moves the parameters once their gradient is known."""

    learning_rate: float
    """Peak learning rate."""
    total_steps: int
    """Step at which a decaying schedule reaches 0."""
    warmup_steps: int = 0
    """Steps of linear warm-up."""
    lr_schedule: ScheduleKind = "constant"
    """Shape of the learning rate after the warm-up."""
    weight_decay: float = 0.0
    """Decoupled weight decay per step, times the learning rate."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled to this Euclidean norm."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.95
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""


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
        BackendError: There is nothing to train, or the moments belong to other parameters.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], spec: OptimizerSpec, moments: Moments
    ) -> None:
        if not parameters:
            raise BackendError(
                "the model has 0 trainable parameters",
                "Train a student with an adapter or with full weights; a teacher is frozen.",
            )
        self.spec = spec
        self._parameters = dict(parameters)
        self._adamw = torch.optim.AdamW(
            list(self._parameters.values()),
            lr=spec.learning_rate,
            betas=(spec.beta1, spec.beta2),
            eps=spec.eps,
            weight_decay=spec.weight_decay,
            fused=True,
        )
        self._restore(moments)

    def step(self, schedule_step: int) -> tuple[float, float]:
        """Clip the gradients and move the parameters once; gradients are cleared.

        Args:
            schedule_step: Steps of the schedule that are done: it decides the learning rate.

        Returns:
            Gradient norm before clipping, and the learning rate.

        Raises:
            NumericsError: The gradient norm is not finite; nothing was moved.
        """
        spec = self.spec
        parameters = list(self._parameters.values())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        norm = float(nn.utils.clip_grad_norm_(parameters, spec.max_grad_norm))
        if not math.isfinite(norm):
            raise NumericsError(
                f"the gradient norm is {norm}",
                "The step was not committed. Lower the learning rate or the loss temperature.",
            )
        rate = learning_rate(
            schedule_step, spec.learning_rate, spec.warmup_steps, spec.total_steps, spec.lr_schedule
        )
        for group in self._adamw.param_groups:
            group["lr"] = rate
        self._adamw.step()
        self.clear()
        return norm, rate

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
