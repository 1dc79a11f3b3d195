"""A start-up check that a target's bits do not depend on what else is scored.

Equality of bits is a property of the machine's matrix kernels, not of mathematics, so it is
measured with the model and the sizes at hand. Targets are kept and handed out again only where it
holds: then an answer from the cache is the answer that would be computed.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from core.models.backend import Backend
from core.recipe.specs import ScoreSpec
from core.seeding import derive_seed
from core.teacher.physical import Asked, ScoringShape, answer

logger = logging.getLogger(__name__)

PROBES = 16
"""Positions per row that the check compares."""

Measured: TypeAlias = tuple[ScoringShape, str, int | None, float | None]


@dataclass(frozen=True)
class Finding:
    """What the check of one shape found."""

    independent: bool
    """Moving a row, replacing its company and what follows a position leave its targets alone."""
    fingerprint: str
    """SHA-256 of the check's results; machines that differ in it compute differently."""


_known: "WeakKeyDictionary[Backend, dict[Measured, Finding]]" = WeakKeyDictionary()


def measured(teacher: Backend, shape: ScoringShape, spec: ScoreSpec) -> Finding:
    """Return what the check finds, measured once per model, shape and spec.

    Two passes over random tokens: the second moves every row, replaces every other one and all
    that follows half of the positions, and asks for fewer positions, so that they are projected at
    other places. Dependence is a finding too, logged as a warning.
    """
    findings = _known.setdefault(teacher, {})
    key = (shape, spec.loss_mode, spec.top_k, spec.temperature)
    if key not in findings:
        findings[key] = _check(teacher, shape, spec)
        if not findings[key].independent:
            logger.warning(
                "%s on %s: bits of a target depend on its batch at %d rows of %d tokens; such "
                "targets are not reused",
                *(teacher.name, teacher.device, shape.rows, shape.width),
            )
    return findings[key]


def _check(teacher: Backend, shape: ScoringShape, spec: ScoreSpec) -> Finding:
    generator = torch.Generator().manual_seed(derive_seed("scoring independence"))
    size = (shape.rows, shape.width)

    def noise() -> Tensor:
        return torch.randint(0, teacher.vocab_size, size, generator=generator)

    ids_BT, half = noise(), shape.width // 2
    positions = sorted({i * (shape.width - 1) // PROBES for i in range(PROBES)})
    first = answer(teacher, [_probe(row, positions, shape) for row in ids_BT.tolist()], spec)
    other_BT = noise()
    other_BT[::2, :half] = ids_BT[::2, :half]
    early = [p for p in positions if p + 1 < half]  # with their target tokens
    asked = [
        _probe(row, early[1:] if index % 2 == 0 else early[:1], shape)
        for index, row in enumerate(other_BT.tolist())
    ]
    moved = [*asked[1:], *asked[:1]]
    second = answer(teacher, moved, spec)
    second = [*second[-1:], *second[:-1]]
    alike = all(
        torch.equal(column, first[index][name][1 : len(early)])
        for index in range(0, shape.rows, 2)
        for name, column in second[index].items()
    )
    return Finding(alike, _digest(first))


def _probe(row: list[int], positions: Sequence[int], shape: ScoringShape) -> Asked:
    following = [row[(p + 1) % len(row)] for p in positions]
    return Asked(row, positions, following, shape)


def _digest(parts: Sequence[Mapping[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for name, column in sorted(part.items()):
            digest.update(name.encode())
            digest.update(column.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
