"""A start-up check that an episode's bits do not depend on who shares its batch.

Equality of bits is a property of the machine's matrix kernels, not of mathematics: a product may
add in another order for another number of rows. So it is measured on the machine at hand, with
the model and the sizes at hand, and recorded with the episodes. What holds is then used: where
fewer rows or key slots provably give the same bits, a step may leave out the empty ones.
"""

import hashlib
import logging
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from core.models.backend import Backend
from core.rollout.rows import window
from core.rollout.shape import EngineShape
from core.seeding import derive_seed

logger = logging.getLogger(__name__)

SHIFT = 5
"""Rows that the check moves every row by; no divisor of usual row counts."""


@dataclass(frozen=True)
class Independence:
    """What the check found.

    Attributes:
        rows_are_independent: Moving a row, replacing the others and changing the padding leave its
            bits alone.
        row_counts: Numbers of rows that give the bits of all rows.
        widths: Numbers of key slots that give the bits of all slots.
        digest: SHA-256 of the check's results; for equal weights, machines with equal digests
            compute alike.
    """

    rows_are_independent: bool
    row_counts: tuple[int, ...]
    widths: tuple[int, ...]
    digest: str


_known: "WeakKeyDictionary[Backend, dict[EngineShape, Independence]]" = WeakKeyDictionary()


def measured_independence(backend: Backend, shape: EngineShape) -> Independence:
    """Return what the check finds, measured once per backend object and shape.

    Which sums the kernels use depends on sizes, not on the weights, so training in between does
    not call for another check; the digest is that of the weights at the first call.
    """
    findings = _known.setdefault(backend, {})
    if shape not in findings:
        findings[shape] = independence_fingerprint(backend, shape)
    return findings[shape]


@torch.inference_mode()
def independence_fingerprint(backend: Backend, shape: EngineShape) -> Independence:
    """Run the check: a few engine steps on noise.

    Args:
        backend: The model.
        shape: Sizes of the engine's steps.

    Returns:
        The findings. Dependence is a finding too, logged as a warning.
    """
    probe = _Probe(backend, shape)
    decoded_SH = probe.decode(0, shape.rows, shape.width)
    prefilled_SCH = probe.prefill(shape.rows, shape.width)
    row_counts = tuple(
        count
        for count in shape.row_counts
        if all(
            torch.equal(probe.decode(first, first + count, shape.width), decoded_SH[first:][:count])
            for first in range(0, shape.rows - count + 1, shape.group)
        )
    )
    widths = tuple(
        width
        for width in shape.widths
        if torch.equal(probe.decode(0, shape.rows, width), decoded_SH)
        and torch.equal(probe.prefill(shape.group, width), prefilled_SCH[: shape.group])
    )
    independent = probe.company_is_irrelevant(decoded_SH, prefilled_SCH)
    if not independent:
        logger.warning(
            "%s on %s: bits of an episode depend on its batch here", backend.name, backend.device
        )
        row_counts = widths = ()
    facts = repr((shape, independent, row_counts, widths, torch.__version__)).encode()
    digest = hashlib.sha256(facts + _bytes(decoded_SH) + _bytes(prefilled_SCH)).hexdigest()
    return Independence(independent, row_counts, widths, digest)


class _Probe:
    """Rows of noise at various cursors, all within the smallest width."""

    def __init__(self, backend: Backend, shape: EngineShape) -> None:
        self.backend = backend
        self.shape = shape
        self.generator = torch.Generator().manual_seed(derive_seed("independence"))
        self.cache = backend.new_cache(shape.rows, shape.width)
        self.refill(torch.arange(shape.rows))
        room = min((*shape.widths, shape.width)) - shape.block + 1
        self.cursors_S = (torch.arange(shape.rows) * 7 % room).to(backend.device)
        self.token_ids_SC = self._tokens(shape.rows, shape.block)

    def _tokens(self, rows: int, count: int) -> Tensor:
        size = (rows, count)
        ids = torch.randint(0, self.backend.vocab_size, size, generator=self.generator)
        return ids.to(self.backend.device)

    def refill(self, rows_R: Tensor) -> None:
        """Fill rows of the cache with new noise."""
        for tensor in [*self.cache.keys, *self.cache.values]:
            noise = torch.rand((len(rows_R), *tensor.shape[1:]), generator=self.generator)
            tensor[rows_R.to(tensor.device)] = (noise * 2 - 1).to(tensor.device, tensor.dtype)

    def decode(self, start: int, stop: int, width: int) -> Tensor:
        """Return logits of one decode step on rows ``[start, stop)``."""
        hidden_SQH = self.backend.step(
            self.token_ids_SC[start:stop, :1],
            self.cursors_S[start:stop, None],
            window(self.cache, start, stop, width),
        )
        return self.backend.project(hidden_SQH[:, 0])

    def prefill(self, stop: int, width: int) -> Tensor:
        """Return hidden states of one prefill step per group of rows ``[0, stop)``."""
        group = self.shape.group
        offsets_C = torch.arange(self.shape.block, device=self.backend.device)
        parts = [
            self.backend.step(
                self.token_ids_SC[start : start + group],
                self.cursors_S[start : start + group, None] + offsets_C,
                window(self.cache, start, start + group, width),
            )
            for start in range(0, stop, group)
        ]
        return torch.cat(parts)

    def company_is_irrelevant(self, decoded_SV: Tensor, prefilled_SCH: Tensor) -> bool:
        """Move all rows, then replace every other row and the padding, and compare."""
        rows, width, half = self.shape.rows, self.shape.width, (self.shape.block + 1) // 2
        for tensor in [*self.cache.keys, *self.cache.values]:
            tensor.copy_(tensor.roll(SHIFT, 0))
        self.cursors_S = self.cursors_S.roll(SHIFT, 0)
        self.token_ids_SC = self.token_ids_SC.roll(SHIFT, 0)
        moved = torch.equal(self.decode(0, rows, width), decoded_SV.roll(SHIFT, 0))
        moved &= torch.equal(self.prefill(rows, width), prefilled_SCH.roll(SHIFT, 0))
        others = torch.arange(1, rows, 2)
        self.refill(others)
        self.token_ids_SC[others] = self._tokens(len(others), self.shape.block)
        self.token_ids_SC[:, half:] = self._tokens(rows, self.shape.block - half)
        decoded_too = self.decode(0, rows, width)[::2]
        prefilled_too = self.prefill(rows, width)[::2, :half]
        return (
            moved
            and torch.equal(decoded_too, decoded_SV.roll(SHIFT, 0)[::2])
            and torch.equal(prefilled_too, prefilled_SCH.roll(SHIFT, 0)[::2, :half])
        )


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
