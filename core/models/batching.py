"""Physical batches of ragged sequences. They decide speed and memory and never the objective."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.recipe.runtime import Runtime

AUTO_PADDED_TOKENS = 16_384
"""Padded tokens per batch where ``trajectory_batch_size`` is ``auto`` and nothing else is said."""


@dataclass(frozen=True)
class PaddedBatch:
    """Sequences padded on the right, and the selected positions of all rows in one list."""

    token_ids_BT: Tensor
    """int64; ids past a row's length are padding."""
    lengths_B: Tensor
    """int64, real tokens of each row."""
    rows_N: Tensor
    """Row of each selected position, int64."""
    positions_N: Tensor
    """Selected positions, int64, row by row."""
    offsets: tuple[int, ...]
    """Row ``b`` owns entries ``[offsets[b], offsets[b + 1])`` of the lists above."""

    def gather(self, hidden_BTH: Tensor) -> Tensor:
        """Return ``hidden_NH`` at the selected positions."""
        return hidden_BTH[self.rows_N, self.positions_N]


def plan_batches(
    lengths: Sequence[int],
    batch_size: int,
    max_padded_tokens: int | None = None,
    *,
    sort_by_length: bool = True,
) -> tuple[tuple[int, ...], ...]:
    """Group sequences so that little padding is computed.

    Shortest first, ties by index. A batch closes when it holds ``batch_size`` rows or when one more
    would make ``rows * longest`` exceed ``max_padded_tokens``. A sequence longer than that limit is
    a batch of its own: it cannot be split.

    Args:
        lengths: Tokens of each sequence.
        batch_size: Most rows of a batch, at least 1.
        max_padded_tokens: Most tokens of a batch, padding included; None is no limit.
        sort_by_length: False keeps the given order.

    Returns:
        Batches of indices into ``lengths``; each index occurs once.

    Raises:
        ValueError: ``batch_size`` < 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    order = range(len(lengths))
    if sort_by_length:
        order = sorted(order, key=lambda index: lengths[index])
    batches: list[list[int]] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        full = not batches or len(batches[-1]) == batch_size
        if not full and max_padded_tokens is not None:
            full = longest * (len(batches[-1]) + 1) > max_padded_tokens
        if full:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return tuple(tuple(batch) for batch in batches)


def plan_physical(lengths: Sequence[int], runtime: Runtime) -> tuple[tuple[int, ...], ...]:
    """Return the batches that a runtime asks for, as indices into ``lengths``."""
    rows, limit = runtime.trajectory_batch_size, runtime.max_update_padded_tokens
    if rows == "auto":
        rows, limit = max(len(lengths), 1), limit or AUTO_PADDED_TOKENS
    return plan_batches(lengths, rows, limit, sort_by_length=runtime.length_bucketing)


def needed_tokens(sequence: Sequence[int], positions: Sequence[int]) -> Sequence[int]:
    """Return a sequence up to its last selected position, at least one token.

    A causal model's output there depends on nothing later: neither the last target nor a tool
    result that crossed the token limit has to be computed, or to fit into the model's context.

    Args:
        sequence: Token ids.
        positions: Selected positions.
    """
    return sequence[: max(positions, default=0) + 1]


def pad_batch(
    sequences: Sequence[Sequence[int]],
    selected: Sequence[Sequence[int]],
    pad_id: int,
    device: torch.device | str = "cpu",
    *,
    width: int | None = None,
) -> PaddedBatch:
    """Pad sequences on the right and list their selected positions.

    Args:
        sequences: Token ids of each row, none empty.
        selected: Positions of each row.
        pad_id: Id written past a row's end.
        device: Where the tensors go.
        width: Tokens of every row, padding included; None is those of the longest.

    Raises:
        ValueError: There is no row, a row is empty or longer than ``width``, the counts differ, or
            a position lies outside its row.
    """
    if not sequences or len(sequences) != len(selected):
        raise ValueError(f"{len(sequences)} sequences but {len(selected)} selections")
    lengths = [len(sequence) for sequence in sequences]
    for row, (length, positions) in enumerate(zip(lengths, selected, strict=True)):
        if length == 0:
            raise ValueError(f"sequence {row} is empty")
        if positions and not (min(positions) >= 0 and max(positions) < length):
            raise ValueError(f"sequence {row} has {length} tokens; a selected position is outside")
    width = max(lengths) if width is None else width
    if width < max(lengths):
        raise ValueError(f"a sequence has {max(lengths)} tokens; rows have {width}")
    padded = [[*sequence, *[pad_id] * (width - len(sequence))] for sequence in sequences]
    counts = [len(positions) for positions in selected]
    rows = [row for row, count in enumerate(counts) for _ in range(count)]
    offsets = [0]
    for count in counts:
        offsets.append(offsets[-1] + count)
    return PaddedBatch(
        token_ids_BT=torch.tensor(padded, dtype=torch.int64, device=device),
        lengths_B=torch.tensor(lengths, dtype=torch.int64, device=device),
        rows_N=torch.tensor(rows, dtype=torch.int64, device=device),
        positions_N=torch.tensor(
            [position for positions in selected for position in positions],
            dtype=torch.int64,
            device=device,
        ),
        offsets=tuple(offsets),
    )
