"""The sizes in which the teacher computes: fixed, so that a target's bits know no neighbours.

A matrix product may add in another order for another number of rows, and attention for another
width. So every forward pass of scoring has rows and a width that follow from the backend, the
runtime and the sequence's own length, and every projection a fixed number of states. Who shares a
batch then changes no bit of a target, which is what lets one be kept and handed out again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from core.losses.buckets import top_k_targets
from core.losses.sampled import sampled_log_probs
from core.losses.temperature import at_temperature
from core.models.backend import Backend
from core.models.batching import AUTO_PADDED_TOKENS, pad_batch
from core.recipe.runtime import Runtime
from core.recipe.specs import ScoreSpec

Columns: TypeAlias = dict[str, Tensor]
"""Results by the name that they have in ``targets.safetensors``, one entry per position."""

WIDTH_UNIT = 64
WIDTH_PARTS = 8
"""Widths between two powers of two: at most a quarter of a row above 256 tokens is padding."""
PIECE = 64
"""Most hidden states of one projection."""
WIDE = 256
"""Hidden size from which a single row keeps a CPU busy: dummy rows would cost and gain nothing."""
CPU_TOKENS = 512
"""Tokens of a pass that keep a CPU busy with a narrower model, padding included."""


@dataclass(frozen=True)
class ScoringShape:
    """Sizes of one forward pass and of the projections after it."""

    rows: int
    """Rows, dummies included."""
    width: int
    """Tokens of every row, padding included."""
    piece: int
    """Hidden states of one projection, zeros included."""

    @classmethod
    def of(cls, backend: Backend, runtime: Runtime, tokens: int) -> "ScoringShape":
        """Return the sizes for a sequence of ``tokens`` tokens, whatever else is scored."""
        unit = max(WIDTH_UNIT, (1 << (tokens - 1).bit_length()) // WIDTH_PARTS)
        width = min(-(-tokens // unit) * unit, backend.max_positions)
        rows, limit = runtime.trajectory_batch_size, runtime.max_update_padded_tokens
        if rows == "auto":
            rows, limit = backend.physical_rows, limit or AUTO_PADDED_TOKENS
        if limit is not None:
            rows = max(1, min(rows, limit // width))
        if backend.device.type == "cpu":
            busy = 1 if backend.hidden_size >= WIDE else max(1, CPU_TOKENS // width)
            rows = min(rows, busy)
        return cls(rows, width, min(PIECE, runtime.chunk_size))


@dataclass(frozen=True)
class Asked:
    """What is wanted of the teacher about one trajectory."""

    token_ids: Sequence[int]
    """What the teacher reads, at least up to the last selected position."""
    positions: Sequence[int]
    """Positions whose outputs predict the targets, ascending."""
    target_ids: Sequence[int]
    """The target tokens."""
    shape: ScoringShape
    """Sizes of the pass that answers it."""


def plan(asked: Sequence[Asked], indices: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of one shape each, in ascending width."""
    groups: dict[ScoringShape, list[int]] = {}
    for index in sorted(indices, key=lambda i: asked[i].shape.width):
        groups.setdefault(asked[index].shape, []).append(index)
    for shape, members in groups.items():
        for start in range(0, len(members), shape.rows):
            yield members[start : start + shape.rows]


@torch.no_grad()
def answer(teacher: Backend, batch: Sequence[Asked], spec: ScoreSpec) -> list[Columns]:
    """Answer at most ``rows`` requests of one shape by one forward pass.

    Returns:
        Columns on the CPU, one set per request.
    """
    shape, pad = batch[0].shape, teacher.tokenizer.pad_id
    dummies = shape.rows - len(batch)
    padded = pad_batch(
        [*(one.token_ids for one in batch), *[[pad]] * dummies],
        [*(one.positions for one in batch), *[[]] * dummies],
        pad,
        teacher.device,
        width=shape.width,
    )
    hidden_NH = padded.gather(teacher.hidden_states(padded.token_ids_BT, padded.lengths_B))
    ids = [token for one in batch for token in one.target_ids]
    columns = _reduced(teacher, hidden_NH, ids, spec, shape.piece)
    counts = [len(one.positions) for one in batch]
    split = {name: column.split(counts) for name, column in columns.items()}
    return [{name: parts[i] for name, parts in split.items()} for i in range(len(batch))]


@torch.no_grad()
def nothing(teacher: Backend, spec: ScoreSpec) -> Columns:
    """Return the columns of no position."""
    empty_0H = torch.zeros(0, teacher.hidden_size, dtype=teacher.dtype, device=teacher.device)
    return _kept(teacher, empty_0H, [], spec)


def _reduced(
    teacher: Backend, hidden_NH: Tensor, target_ids: Sequence[int], spec: ScoreSpec, size: int
) -> Columns:
    """Reduce hidden states to what is kept of them, in projections of one size."""
    if spec.loss_mode == "exact_full_vocab":
        return {"teacher_hidden_NH": hidden_NH.cpu()}
    parts = [nothing(teacher, spec)]
    for start in range(0, len(hidden_NH), size):
        piece_PH, ids = hidden_NH[start : start + size], list(target_ids[start : start + size])
        missing = size - len(piece_PH)
        piece_PH = torch.cat([piece_PH, piece_PH.new_zeros(missing, piece_PH.shape[1])])
        columns = _kept(teacher, piece_PH, [*ids, *[0] * missing], spec)
        parts.append({name: column[: len(ids)] for name, column in columns.items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _kept(
    teacher: Backend, hidden_PH: Tensor, target_ids: Sequence[int], spec: ScoreSpec
) -> Columns:
    if spec.loss_mode == "exact_full_vocab":
        return {"teacher_hidden_NH": hidden_PH.cpu()}
    return kept(teacher.project(hidden_PH), target_ids, spec)


def kept(logits_PV: Tensor, target_ids: Sequence[int], spec: ScoreSpec) -> Columns:
    """Return what is kept of a teacher's logits, on the CPU.

    Args:
        logits_PV: At P positions.
        target_ids: The P target tokens.
        spec: What is kept; hidden states cannot be had from logits.
    """
    temperature = spec.temperature or 1.0
    if spec.loss_mode == "verl_pg_k1":
        ids_P = torch.tensor(target_ids, dtype=torch.int64, device=logits_PV.device)
        found_P = sampled_log_probs(at_temperature(logits_PV, temperature), ids_P)
        return {"teacher_logprobs_N": found_P.cpu()}
    targets = top_k_targets(logits_PV, spec.top_k or 1, temperature)
    assert targets.entropy_N is not None, "top_k_targets measures it"
    return {
        "support_ids_NK": targets.support_ids_NK.cpu(),
        "support_logprobs_NK": targets.support_logprobs_NK.cpu(),
        "tail_logprob_N": targets.tail_logprob_N.cpu(),
        "entropy_N": targets.entropy_N.cpu(),
    }
