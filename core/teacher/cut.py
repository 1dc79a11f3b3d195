"""Targets without the positions that a budget has no room for."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from core.losses.targets import BucketTargets, SampledTargets
from core.teacher.targets import ScoredTargets, Selected

COLUMNS = ("prediction_positions", "target_ids", "weights", "span_types")


def first_positions(scored: ScoredTargets, counts: Sequence[int]) -> ScoredTargets:
    """Return targets with the first positions of each trajectory.

    Args:
        scored: All targets.
        counts: How many positions to keep of each trajectory, at most all of its own.

    Returns:
        The same object where all are kept.
    """
    sizes = [len(entry.prediction_positions) for entry in scored.selected]
    if list(counts) == sizes:
        return scored
    kept = [
        start + n
        for start, count in zip(scored.offsets[:-1], counts, strict=True)
        for n in range(count)
    ]
    rows_N = torch.tensor(kept, dtype=torch.int64)
    values = scored.values
    if isinstance(values, torch.Tensor):
        cut = values[rows_N]
    elif isinstance(values, SampledTargets):
        cut = SampledTargets(
            values.sampled_ids_N[rows_N],
            values.teacher_logprobs_N[rows_N],
            values.rollout_logprobs_N[rows_N],
        )
    else:
        cut = _buckets(values, rows_N)
    selected = tuple(map(_first, scored.selected, counts))
    return replace(scored, selected=selected, values=cut)


def _buckets(values: BucketTargets, rows_N: torch.Tensor) -> BucketTargets:
    return BucketTargets(
        support_ids_NK=values.support_ids_NK[rows_N],
        support_logprobs_NK=values.support_logprobs_NK[rows_N],
        tail_logprob_N=values.tail_logprob_N[rows_N],
        entropy_N=None if values.entropy_N is None else values.entropy_N[rows_N],
        temperature=values.temperature,
    )


def _first(entry: Selected, count: int) -> Selected:
    return replace(entry, **{name: getattr(entry, name)[:count] for name in COLUMNS})
