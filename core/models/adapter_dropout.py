"""Dropout of an adapter's inputs that is on in an update and nowhere else, and never by chance.

torch's dropout follows a module's train mode and the global generator. Neither will do: a rollout
with dropout samples from another policy than the one that is trained (identical forward passes
differ by 0.3 nats at rate 0.2), train and eval mode decide the arithmetic of 4-bit layers, and a
global generator makes a mask depend on the batch. Here a mask is a function of the run's seed, the
step, the trajectory's place in its step, the layer, the position and the channel; it is on inside
``dropping`` alone. Micro-batches, checkpointing and resuming therefore see the same masks.

LoRA's dropout: Hu et al. 2021 (https://arxiv.org/abs/2106.09685). Kept inputs are scaled by
1 / (1 - p) (Srivastava et al. 2014, section 10).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from core.models.splitmix import GAMMA, mix
from core.seeding import derive_seed

LANES = 4
"""Draws of 16 bits in one word of 64."""
LEVELS = 2**16


class RowDropout(nn.Module):
    """Drops inputs row by row while it has keys, and is the identity without.

    Args:
        rate: Probability of dropping an input, a multiple of 2⁻¹⁶ after rounding.
        name: The layer, which has a stream of its own.
    """

    def __init__(self, rate: float, name: str) -> None:
        super().__init__()
        self._dropped = min(round(rate * LEVELS), LEVELS - 1)
        self._stream = derive_seed("lora_dropout", name)
        self.keys_B: Tensor | None = None

    def forward(self, inputs_BTI: Tensor) -> Tensor:
        """Return the inputs, some of them zero and the others larger."""
        if self.keys_B is None:
            return inputs_BTI
        scale = LEVELS / (LEVELS - self._dropped)
        kept_BTI = self.kept(self.keys_B, inputs_BTI.shape[1], inputs_BTI.shape[2])
        return inputs_BTI * (kept_BTI.to(inputs_BTI.dtype) * scale)

    def kept(self, keys_B: Tensor, tokens: int, channels: int) -> Tensor:
        """Return ``[B, T, I]`` booleans; those of a token do not depend on the tokens after it."""
        device = keys_B.device
        counters_T = torch.arange(1, tokens + 1, device=device)
        words_BT = mix((keys_B ^ self._stream)[:, None] + counters_T * GAMMA)
        counters_W = torch.arange(1, -(-channels // LANES) + 1, device=device)
        words_BTW = mix(words_BT[..., None] + counters_W * GAMMA)
        lanes_BTI = words_BTW.view(torch.int16)[..., :channels]
        return lanes_BTI >= self._dropped - LEVELS // 2


def install(model: nn.Module, rate: float, adapter: str = "default") -> None:
    """Give the layers of an adapter a dropout of this kind, in place; 0 installs none."""
    if not rate:
        return
    for name, module in model.named_modules():
        dropouts: Any = getattr(module, "lora_dropout", None)
        if isinstance(dropouts, nn.ModuleDict) and adapter in dropouts:
            dropouts[adapter] = RowDropout(rate, name)


@contextlib.contextmanager
def dropping(model: nn.Module, row_seeds: Sequence[int]) -> Iterator[None]:
    """Drop inputs meanwhile; a backward pass that recomputes layers belongs inside.

    Args:
        model: Its layers drop only if ``install`` was called.
        row_seeds: One for each row of the batches that are run, 63 bits each.
    """
    layers = [each for each in model.modules() if isinstance(each, RowDropout)]
    device = next(model.parameters()).device
    keys_B = torch.tensor(list(row_seeds), dtype=torch.int64, device=device)
    for layer in layers:
        layer.keys_B = keys_B
    try:
        yield
    finally:
        for layer in layers:
            layer.keys_B = None
