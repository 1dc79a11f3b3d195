"""Branches of an episode: trajectories of their own, one per history that a template wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.trajectory.spans import Span
from core.trajectory.trajectory import Trajectory, Turn


@dataclass
class Branch:
    """Tokens that one history led to."""

    token_ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_mass: list[float] = field(default_factory=list)

    @property
    def is_written(self) -> bool:
        """Whether the model wrote something in it."""
        return any(span.is_model for span in self.spans)

    @property
    def last_turn(self) -> int:
        """Index of the last turn that the model wrote in it."""
        return max(span.turn_id or 0 for span in self.spans if span.is_model)


def rows_of(
    branches: Sequence[Branch], turns: Sequence[Turn], facts: Mapping[str, Any]
) -> list[Trajectory]:
    """Return one trajectory per branch; a last one that the model never read is left out.

    Args:
        branches: In their order.
        turns: Records of all turns; an earlier branch holds those up to its own end.
        facts: The other fields of the whole episode; earlier branches count no events.
    """
    read = list(branches)
    if len(read) > 1 and not read[-1].is_written:
        read.pop()
    last = len(read) - 1
    if last == 0:
        return [_row(read[0], turns, facts)]
    name = facts["trajectory_id"]
    place = {"parent_id": name, "branches": last + 1}
    shared = {key: value for key, value in facts.items() if key != "counters"} | place
    rows = []
    for index, branch in enumerate(read[:last]):
        known = [turn for turn in turns if turn.turn_id <= branch.last_turn]
        own = {"trajectory_id": f"{name}:b{index}", "branch_index": index}
        rows.append(_row(branch, known, {**shared, **own}))
    return [*rows, _row(read[last], turns, {**facts, **place, "branch_index": last})]


def _row(branch: Branch, turns: Sequence[Turn], facts: Mapping[str, Any]) -> Trajectory:
    return Trajectory(
        token_ids=list(branch.token_ids),
        spans=list(branch.spans),
        turns=list(turns),
        logprobs=list(branch.logprobs),
        kept_mass=list(branch.kept_mass),
        **facts,
    )
