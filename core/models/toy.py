"""A decoder small enough to train in seconds on one CPU thread.

RMSNorm, rotary positions and SwiGLU as in the LLaMA family, no biases, head tied to the embedding.
At this size the cost is operator dispatch rather than arithmetic, so projections are fused and one
engine step uses few operators. Weights are plain parameters initialised from a private generator.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.errors import BackendError
from core.models.backend import PADDING_POSITIONS, KVCache
from core.seeding import derive_seed
from core.trajectory.tokens import TokenCodec

RMS_EPSILON = 1e-6
ROPE_THETA = 1e4
PHYSICAL_ROWS = 32
"""Rows of every engine step: wide enough to amortise dispatch, and constant so that bits are."""


@dataclass(frozen=True)
class ToyConfig:
    """Sizes of a toy decoder; the head count divides ``hidden_size`` into even widths."""

    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 4
    intermediate_size: int = 128
    max_position_embeddings: int = 1024


class ToyBackend:
    """A toy decoder behind the ``Backend`` contract.

    Args:
        config: Sizes.
        seed: Seed of the initial weights; no global generator is read or written.
        tokenizer: The codec whose vocabulary the head covers.
        device: Where the weights live.
        dtype: float32 for use, float64 for gradient checks.

    Raises:
        BackendError: The heads do not divide the hidden width evenly.
    """

    name = "toy"
    physical_rows = PHYSICAL_ROWS
    dropped_mass = 0.0
    quantization = "none"

    def __init__(
        self,
        config: ToyConfig,
        seed: int,
        tokenizer: TokenCodec,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if config.hidden_size % (2 * config.num_heads):
            raise BackendError(
                f"num_heads {config.num_heads} does not divide hidden_size {config.hidden_size} "
                "into even head widths",
                "Choose a hidden_size that is a multiple of 2 * num_heads.",
            )
        self.config = config
        self.tokenizer = tokenizer
        self.device = torch.device(device)
        self.dtype = dtype
        self.vocab_size = tokenizer.vocab_size
        self.hidden_size = config.hidden_size
        self.max_positions = config.max_position_embeddings
        self.step_positions = self.max_positions + PADDING_POSITIONS
        self.head_width = config.hidden_size // config.num_heads
        self.parameters = {
            name: nn.Parameter(tensor.to(device=self.device, dtype=dtype))
            for name, tensor in sorted(initial_weights(config, seed, self.vocab_size).items())
        }
        self._rotation_PD = rotations(self.step_positions, self.head_width, dtype).to(self.device)

    def hidden_states(self, token_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Run the trunk over right-padded rows: causal attention alone hides the padding.

        Raises:
            BackendError: A row is longer than the model's context.
        """
        del lengths_B
        if token_ids_BT.shape[1] > self.max_positions:
            raise BackendError(
                f"a row has {token_ids_BT.shape[1]} tokens and the toy model {self.max_positions} "
                "positions",
                "Raise max_position_embeddings or lower rollout.max_total_tokens.",
            )
        rotation_TD = self._rotation_PD[: token_ids_BT.shape[1]]
        x_BTH = F.embedding(token_ids_BT, self.parameters["embedding"])
        for layer in range(self.config.num_layers):
            q, k, v = self._attention_inputs(x_BTH, rotation_TD, layer)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x_BTH = self._layer_output(x_BTH, mixed, layer)
        return self._norm(x_BTH, "norm")

    def project(self, hidden_NH: Tensor) -> Tensor:
        """Apply the tied head: ``logits_NV``."""
        return hidden_NH @ self.parameters["embedding"].T

    def new_cache(self, rows: int, width: int) -> KVCache:
        """Allocate zeroed keys and values for ``rows`` rows of ``width`` slots."""
        shape = (rows, self.config.num_heads, width, self.head_width)
        layers = range(self.config.num_layers)
        return KVCache(
            keys=[torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in layers],
            values=[torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in layers],
        )

    @torch.no_grad()
    def step(self, token_ids_SQ: Tensor, positions_SQ: Tensor, cache: KVCache) -> Tensor:
        """Write the tokens' keys and values at their positions and return ``hidden_SQH``."""
        rows_S1 = torch.arange(token_ids_SQ.shape[0], device=self.device)[:, None]
        slots_W = torch.arange(cache.width, device=self.device)
        hidden_slots_SQW = slots_W > positions_SQ[..., None]
        bias_SQW = torch.zeros_like(hidden_slots_SQW, dtype=self.dtype)
        bias_SQW.masked_fill_(hidden_slots_SQW, -torch.inf)
        bias = bias_SQW.repeat_interleave(self.config.num_heads, dim=0)
        rotation_SQD = self._rotation_PD[positions_SQ]
        x_SQH = F.embedding(token_ids_SQ, self.parameters["embedding"])
        for layer, (keys, values) in enumerate(zip(cache.keys, cache.values, strict=True)):
            q, k, v = self._attention_inputs(x_SQH, rotation_SQD, layer)
            keys[rows_S1, :, positions_SQ] = k.transpose(1, 2)
            values[rows_S1, :, positions_SQ] = v.transpose(1, 2)
            x_SQH = self._layer_output(x_SQH, self._attend(q, keys, values, bias), layer)
        return self._norm(x_SQH, "norm")

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that require gradients, in sorted order: all of them until ``freeze``."""
        return {name: p for name, p in self.parameters.items() if p.requires_grad}

    def freeze(self) -> None:
        """Make every parameter part of ``frozen_digest``: a teacher is never trained."""
        for parameter in self.parameters.values():
            parameter.requires_grad_(False)

    def dropout(self, row_seeds: Sequence[int]) -> AbstractContextManager[None]:
        """Drop nothing: a toy has no adapter."""
        del row_seeds
        return nullcontext()

    def frozen_digest(self) -> str:
        """SHA-256 over names and bytes of the parameters that do not require gradients."""
        digest = hashlib.sha256()
        for name, parameter in self.parameters.items():
            if not parameter.requires_grad:
                digest.update(name.encode())
                digest.update(parameter.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    def gradient_check(self) -> None:
        """Return None: a toy is never quantised."""

    @torch.no_grad()
    def load_trainable(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the trainable parameters in place.

        Raises:
            BackendError: Names or shapes differ; nothing was written.
        """
        own = self.trainable()
        expected = {name: tuple(p.shape) for name, p in own.items()}
        given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if expected != given:
            differing = sorted(set(expected.items()) ^ set(given.items()))
            raise BackendError(
                f"the tensors do not fit this toy model: {differing[0][0]!r} differs in name or "
                "shape",
                "Load tensors that were trained with the same sizes.",
            )
        for name, tensor in tensors.items():
            own[name].copy_(tensor)

    def check_gradients(self) -> None:
        """Do nothing: a toy shares no weight."""

    def move_to(self, device: torch.device) -> None:
        """Move every weight to a device; the parameters stay the same objects."""
        self.device = device
        for parameter in self.parameters.values():
            parameter.data = parameter.data.to(device)
        self._rotation_PD = self._rotation_PD.to(device)

    def _attention_inputs(
        self, x_BTH: Tensor, rotation: Tensor, layer: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated q and k, and v, each ``[B, heads, T, D]``."""
        heads = self.config.num_heads
        normed = self._norm(x_BTH, f"layers.{layer}.attention_norm")
        fused = normed @ self.parameters[f"layers.{layer}.qkv"].T
        batch, tokens = fused.shape[:2]
        fused = fused.view(batch, tokens, 3 * heads, self.head_width)
        pairs = torch.view_as_complex(
            fused[:, :, : 2 * heads].unflatten(-1, (self.head_width // 2, 2))
        )
        turned = torch.view_as_real(pairs * rotation.unsqueeze(-2)).flatten(-2)
        q, k = turned.transpose(1, 2).split(heads, dim=1)
        return q, k, fused[:, :, 2 * heads :].transpose(1, 2)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """Attend over all slots by batched products, which beat SDPA at one query per row."""
        scores = torch.baddbmm(
            bias, q.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2), alpha=self.head_width**-0.5
        )
        return torch.bmm(scores.softmax(-1), values.flatten(0, 1)).view(q.shape)

    def _layer_output(self, x_BTH: Tensor, mixed: Tensor, layer: int) -> Tensor:
        """Add attention's and then SwiGLU's contribution to the residual stream."""
        mixed_BTH = mixed.transpose(1, 2).flatten(-2)
        x_BTH = x_BTH + mixed_BTH @ self.parameters[f"layers.{layer}.out"].T
        normed = self._norm(x_BTH, f"layers.{layer}.mlp_norm")
        gate, up = (normed @ self.parameters[f"layers.{layer}.gate_up"].T).chunk(2, dim=-1)
        return x_BTH + (F.silu(gate) * up) @ self.parameters[f"layers.{layer}.down"].T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (self.hidden_size,), self.parameters[name], RMS_EPSILON)


def initial_weights(config: ToyConfig, seed: int, vocab_size: int) -> dict[str, Tensor]:
    """Draw float32 weights: normal, variance 1/fan-in, smaller where they write to the residual.

    Args:
        config: Sizes.
        seed: Seed of the private generator.
        vocab_size: Rows of the embedding.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "toy weights"))
    hidden, inner = config.hidden_size, config.intermediate_size
    residual_scale = (2 * config.num_layers) ** -0.5

    def normal(rows: int, columns: int, scale: float = 1.0) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * (scale * columns**-0.5)

    weights = {"embedding": normal(vocab_size, hidden), "norm": torch.ones(hidden)}
    for layer in range(config.num_layers):
        weights[f"layers.{layer}.attention_norm"] = torch.ones(hidden)
        weights[f"layers.{layer}.qkv"] = normal(3 * hidden, hidden)
        weights[f"layers.{layer}.out"] = normal(hidden, hidden, residual_scale)
        weights[f"layers.{layer}.mlp_norm"] = torch.ones(hidden)
        weights[f"layers.{layer}.gate_up"] = normal(2 * inner, hidden)
        weights[f"layers.{layer}.down"] = normal(hidden, inner, residual_scale)
    return weights


def rotations(positions: int, head_width: int, dtype: torch.dtype) -> Tensor:
    """Return ``[positions, head_width / 2]`` unit complex numbers: RoPE with adjacent pairs.

    Angle of pair ``i`` at position ``p`` is ``p * theta**(-2 i / head_width)`` (Su et al. 2021,
    https://arxiv.org/abs/2104.09864, equation 15), computed in float64.
    """
    pairs = torch.arange(0, head_width, 2, dtype=torch.float64)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * ROPE_THETA ** (
        -pairs / head_width
    )
    complex_dtype = torch.complex128 if dtype is torch.float64 else torch.complex64
    return torch.polar(torch.ones_like(angles), angles).to(complex_dtype)
