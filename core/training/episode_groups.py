"""Which trajectories make one optimizer step: those of so many episodes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol


class Branch(Protocol):
    """A trajectory, or what is trained of one."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the last or only branch of its episode."""
        ...


def episode_groups(trajectories: Sequence[Branch], size: int) -> list[range]:
    """Return ranges of trajectories that hold ``size`` episodes each, the last perhaps fewer.

    The branches of an episode follow one another and stay together: they come from one sampling.

    Args:
        trajectories: Branches in their order.
        size: Episodes per group.
    """
    ends = [index + 1 for index, row in enumerate(trajectories) if row.is_whole]
    cuts = [0, *ends[size - 1 :: size]]
    if cuts[-1] < len(trajectories):
        cuts.append(len(trajectories))
    return [range(*pair) for pair in pairwise(cuts)]
