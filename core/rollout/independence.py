"""A start-up check that an episode's bits do not depend on who shares its batch.

Equality of bits is a property of the machine's matrix kernels, not of mathematics: a product may
add in another order for another number of rows. So it is measured on the machine at hand, with
the model and the sizes at hand, and recorded with the episodes. What holds is then used: where
fewer rows or key slots provably give the same bits, a step may leave out the empty ones.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from core.artifacts.record import NumericClass
from core.models.backend import Backend
from core.rollout.limits import EpisodeLimits
from core.rollout.rows import window
from core.rollout.shape import EngineShape
from core.seeding import derive_seed

logger = logging.getLogger(__name__)

SHIFT = 5
"""Rows that the check moves every row by; no divisor of usual row counts, and odd: an even row
becomes an odd one."""
ALONE = 4
"""Rows whose prefill is compared where rows are prefilled one by one: each costs a step."""


@dataclass(frozen=True)
class Independence:
    """What the check found.

    Attributes:
        rows_are_independent: Moving a row, replacing the others and changing the padding leave its
            bits alone.
        row_counts: Numbers of rows that give a decode step the bits of all rows, ascending.
        decode_widths: Numbers of key slots that give a decode step the bits of all slots.
        prefill_widths: The same for a prefill step, whose products are cut at other places.
        digest: SHA-256 of the check's results; for equal weights, machines with equal digests
            compute alike.
    """

    rows_are_independent: bool
    row_counts: tuple[int, ...] = ()
    decode_widths: tuple[int, ...] = ()
    prefill_widths: tuple[int, ...] = ()
    digest: str = ""


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


def engine_class(backend: Backend, limits: EpisodeLimits) -> NumericClass:
    """Return what may change the last bits of the episodes that a backend samples here."""
    shape = EngineShape.of(backend, limits)
    found = measured_independence(backend, shape)
    cuda = backend.device.type == "cuda"
    return NumericClass(
        device=f"cuda:{torch.cuda.get_device_name(backend.device)}" if cuda else "cpu",
        physical_rows=shape.rows,
        width=shape.width,
        threads=torch.get_num_threads(),
        rows_are_independent=found.rows_are_independent,
        fingerprint=found.digest,
    )


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
    decoded_SV, prefilled_SCH = probe.decode(), probe.prefill(probe.first_rows())
    independent = probe.company_is_irrelevant(decoded_SV, prefilled_SCH)
    counts, decode_widths, prefill_widths = [], [], []
    if independent:
        decode_widths = [width for width in shape.widths if probe.decodes_alike(width)]
        prefill_widths = [width for width in shape.widths if probe.prefills_alike(width)]
        counts = list(shape.row_counts)
        for width in [*decode_widths, shape.width]:
            counts = probe.counts_alike(width, counts)
    else:
        logger.warning(
            "%s on %s: bits of an episode depend on its batch here", backend.name, backend.device
        )
    findings = (independent, tuple(counts), tuple(decode_widths), tuple(prefill_widths))
    facts = repr((shape, findings, torch.__version__)).encode()
    digest = hashlib.sha256(facts + _bytes(decoded_SV) + _bytes(prefilled_SCH)).hexdigest()
    return Independence(*findings, digest)


class _Probe:
    """Rows of noise at cursors all over the cache."""

    def __init__(self, backend: Backend, shape: EngineShape) -> None:
        self.backend = backend
        self.shape = shape
        self.generator = torch.Generator().manual_seed(derive_seed("independence"))
        self.cache = backend.new_cache(shape.rows, shape.width)
        self.refill(torch.arange(shape.rows))
        self.cursors_S = self.spread(shape.width, shape.block)
        self.token_ids_SC = self.tokens(shape.rows, shape.block)

    def spread(self, width: int, count: int) -> Tensor:
        """Return one cursor per row from which ``count`` tokens fit, the first as far as they go.

        A product over many slots is cut into parts, and where depends on their number, so only
        rows that fill a width tell whether the width matters.
        """
        last = min(width, self.backend.step_positions) - count
        return ((last - torch.arange(self.shape.rows) * 7) % (last + 1)).to(self.backend.device)

    def tokens(self, rows: int, count: int) -> Tensor:
        """Return random ids, ``[rows, count]``."""
        size = (rows, count)
        ids = torch.randint(0, self.backend.vocab_size, size, generator=self.generator)
        return ids.to(self.backend.device)

    def refill(self, rows_R: Tensor) -> None:
        """Fill rows of the cache with new noise, the same in every layer: noise is not free."""
        shape = (len(rows_R), *self.cache.keys[0].shape[1:])
        noise = torch.rand(shape, generator=self.generator) * 2 - 1
        for tensor in [*self.cache.keys, *self.cache.values]:
            tensor[rows_R.to(tensor.device)] = noise.to(tensor.device, tensor.dtype)

    def decode(self, rows: slice | None = None, width: int | None = None) -> Tensor:
        """Return logits of one decode step, by default on all rows and slots."""
        taken = rows or slice(0, self.shape.rows)
        hidden_SQH = self.backend.step(
            self.token_ids_SC[taken, :1],
            self.cursors_S[taken, None],
            window(self.cache, taken.start, taken.stop, width or self.shape.width),
        )
        return self.backend.project(hidden_SQH[:, 0])

    def first_rows(self) -> list[int]:
        """Return the first row of each group that is prefilled for comparison: all, or some."""
        rows, size = self.shape.rows, self.shape.group
        return list(range(0, rows, size) if size > 1 else range(0, min(rows, 2 * ALONE), 2))

    def prefill(self, first_rows: Sequence[int], width: int | None = None) -> Tensor:
        """Return hidden states of one prefill step per group, by default on all slots."""
        size = self.shape.group
        offsets_C = torch.arange(self.shape.block, device=self.backend.device)
        parts = [
            self.backend.step(
                self.token_ids_SC[start : start + size],
                self.cursors_S[start : start + size, None] + offsets_C,
                window(self.cache, start, start + size, width or self.shape.width),
            )
            for start in first_rows
        ]
        return torch.cat(parts)

    def decodes_alike(self, width: int) -> bool:
        """Decode with ``width`` slots and compare."""
        self.cursors_S = self.spread(width, 1)
        return torch.equal(self.decode(width=width), self.decode())

    def counts_alike(self, width: int, counts: list[int]) -> list[int]:
        """Return those counts whose first and last rows decode to what all rows decode to."""
        rows = self.shape.rows
        self.cursors_S = self.spread(width, 1)
        expected_SV = self.decode(width=width)
        return [
            count
            for count in counts
            if all(
                torch.equal(self.decode(part, width), expected_SV[part])
                for part in (slice(0, count), slice(rows - count, rows))
            )
        ]

    def prefills_alike(self, width: int) -> bool:
        """Prefill the first group with ``width`` slots and compare."""
        self.cursors_S = self.spread(width, self.shape.block)
        return torch.equal(self.prefill([0], width), self.prefill([0]))

    def company_is_irrelevant(self, decoded_SV: Tensor, prefilled_SCH: Tensor) -> bool:
        """Move all rows, then replace every other row and the padding, and compare."""
        rows, half = self.shape.rows, (self.shape.block + 1) // 2
        first, kept = self.first_rows(), slice(1, None, 2)
        for tensor in [*self.cache.keys, *self.cache.values]:
            tensor.copy_(tensor.roll(SHIFT, 0))
        self.cursors_S = self.cursors_S.roll(SHIFT, 0)
        self.token_ids_SC = self.token_ids_SC.roll(SHIFT, 0)
        decoded_SV = decoded_SV.roll(SHIFT, 0)
        if self.shape.group > 1:
            prefilled_SCH = prefilled_SCH.roll(SHIFT, 0)
        else:
            first, kept = [(row + SHIFT) % rows for row in first], slice(None)
        moved = torch.equal(self.decode(), decoded_SV)
        moved &= torch.equal(self.prefill(first), prefilled_SCH)
        others = torch.arange(0, rows, 2)
        self.refill(others)
        self.token_ids_SC[others] = self.tokens(len(others), self.shape.block)
        self.token_ids_SC[:, half:] = self.tokens(rows, self.shape.block - half)
        replaced = torch.equal(self.decode()[1::2], decoded_SV[1::2])
        again_SCH = self.prefill(first)
        replaced &= torch.equal(again_SCH[kept, :half], prefilled_SCH[kept, :half])
        return moved and replaced


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
