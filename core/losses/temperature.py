"""The temperature of a divergence: what it does to logits, and the factor that undoes it.

Three temperatures are kept apart everywhere: the sampling temperature belongs to the rollouts; the
loss temperature divides the student's logits inside a divergence; the teacher's divides the
teacher's, and is the loss temperature unless a recipe says otherwise.
"""

import math

import torch
from torch import Tensor


def at_temperature(logits_NV: Tensor, temperature: float) -> Tensor:
    """Return ``logits / temperature`` in at least float32.

    A bfloat16 softmax over a large vocabulary loses whole nats, so the upcast comes first.

    Args:
        logits_NV: Raw logits.
        temperature: τ > 0.

    Returns:
        The scaled logits; float64 stays float64.

    Raises:
        ValueError: τ is not a positive finite number.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be positive and finite, got {temperature}")
    wide_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    return wide_NV if temperature == 1.0 else wide_NV / temperature


def of_teacher(teacher_temperature: float | None, temperature: float) -> float:
    """Return the teacher's temperature: its own, or the loss temperature where it has none.

    Args:
        teacher_temperature: τ of the teacher, or None.
        temperature: τ of the loss.

    Returns:
        What the teacher's logits are divided by.
    """
    return temperature if teacher_temperature is None else teacher_temperature


def gain(temperature: float, scale_by_temperature_squared: bool) -> float:
    """Return τ² where asked for, else 1.

    Args:
        temperature: τ.
        scale_by_temperature_squared: Whether the factor applies.

    Returns:
        The factor of the divergence.
    """
    return temperature * temperature if scale_by_temperature_squared else 1.0
