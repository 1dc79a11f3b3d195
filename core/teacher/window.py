"""A part of a scored data set: the episodes of one cycle, with their targets."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from core.losses.targets import BucketTargets, SampledTargets
from core.recipe.dataset_spec import WindowSpec
from core.teacher.targets import ScoredTargets
from core.trajectory.trajectory import Trajectory


def window(
    trajectories: Sequence[Trajectory], scored: ScoredTargets, spec: WindowSpec | None
) -> tuple[list[Trajectory], ScoredTargets]:
    """Return consecutive episodes of a data set with their targets; it starts over at its end.

    Args:
        trajectories: All of them; the branches of an episode follow one another and count as one.
        scored: What the teacher said about them, in the same order.
        spec: Which episodes; None for all.
    """
    if spec is None:
        return list(trajectories), scored
    episodes = _episodes(trajectories)
    places = [(spec.first + i) % len(episodes) for i in range(spec.episodes)]
    indices = [branch for place in places for branch in episodes[place]]
    return [trajectories[i] for i in indices], pick(scored, indices)


def pick(scored: ScoredTargets, indices: Sequence[int]) -> ScoredTargets:
    """Return the targets of some trajectories, in the given order."""
    offsets = scored.offsets
    pieces = [slice(offsets[i], offsets[i + 1]) for i in indices]

    def select(tensor: Tensor) -> Tensor:
        return torch.cat([tensor[piece] for piece in pieces])

    values = scored.values
    if isinstance(values, BucketTargets | SampledTargets):
        columns = {name: one for name, one in vars(values).items() if isinstance(one, Tensor)}
        values = replace(values, **{name: select(one) for name, one in columns.items()})
    else:
        values = select(values)
    return replace(scored, selected=tuple(scored.selected[i] for i in indices), values=values)


def _episodes(trajectories: Sequence[Trajectory]) -> list[range]:
    ends = [index + 1 for index, row in enumerate(trajectories) if row.is_whole]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
