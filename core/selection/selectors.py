"""Selectors: which of the student's tokens the teacher is asked about, and with what weight.

What a selection saves is queried positions, not compute: the teacher still reads every token.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from core.errors import RecipeError
from core.seeding import derive_seed
from core.selection.gate import is_qualified
from core.trajectory.trajectory import Trajectory


class SelectionSpec(Protocol):
    """Section ``selection`` of a recipe, or anything shaped like it."""

    @property
    def selector(self) -> str:
        """Name of the rule."""
        ...

    @property
    def ratio(self) -> float:
        """Share of the student's tokens, in (0, 1]."""
        ...

    @property
    def max_positions_per_trajectory(self) -> int | None:
        """Cap, or None."""
        ...

    @property
    def critical_weight(self) -> float:
        """Weight of a token in a typed block."""
        ...

    @property
    def other_weight(self) -> float:
        """Weight of any other token of the student."""
        ...

    @property
    def skip_first_tokens(self) -> int | None:
        """Tokens at the start of each turn that are never selected; 0 and None are none."""
        ...


OwnRule = Callable[[Trajectory, list[int], int], list[int]]
"""A selector that is not built in (``core.selection.plugins``): the trajectory, the positions that
may be chosen, and a seed of this trajectory alone, to the positions that are."""


@dataclass(frozen=True)
class SelectionStats:
    """Counts of one selection."""

    selector: str
    total_model_tokens: int
    """Positions that could have been selected."""
    selected_model_tokens: int
    total_critical_tokens: int
    selected_critical_tokens: int
    query_ratio: float
    """Selected over total; 0 where there is nothing to select from."""
    by_span_type: dict[str, int]
    """Selected positions per span type."""
    gate_qualified: bool | None = None
    """Verdict of the gate; None for selectors without one."""


@dataclass(frozen=True)
class Selection:
    """Target positions of one trajectory, ascending, with one weight each."""

    positions: list[int]
    weights: list[float]
    stats: SelectionStats


def select_positions(
    trajectory: Trajectory, spec: SelectionSpec, run_seed: int, own_rule: OwnRule | None = None
) -> Selection:
    """Choose the target positions of a trajectory.

    Samples come from ``random.Random(derive_seed(run_seed, trajectory_id))`` and depend on nothing
    else. A cap removes other tokens before critical ones, the last before the first of each.

    Args:
        trajectory: Whose tokens.
        spec: The rule and its numbers.
        run_seed: Seed of the run.
        own_rule: What a plug-in's selector is; None for one that is built in.

    Returns:
        Positions, weights and counts; possibly empty.

    Raises:
        RecipeError: Unknown selector.
        PluginError: The plug-in's positions are not the student's, or are named twice.
    """
    if spec.selector not in SELECTORS and own_rule is None:
        raise RecipeError(
            f"selection.selector {spec.selector!r} does not exist",
            f"Choose one of {', '.join(SELECTORS)}.",
        )
    critical_mask = trajectory.critical_mask
    candidates = _candidates(trajectory, spec.skip_first_tokens or 0)
    critical = [position for position in candidates if critical_mask[position]]
    other = [position for position in candidates if not critical_mask[position]]
    seed = derive_seed(run_seed, trajectory.trajectory_id)
    if own_rule is not None:
        chosen = own_rule(trajectory, candidates, seed)
    else:
        chosen = SELECTORS[spec.selector](
            _Candidates(candidates, critical, other, trajectory.metadata),
            spec.ratio,
            random.Random(seed),
        )
    positions = _capped(chosen, critical_mask, spec.max_positions_per_trajectory)
    weights = [
        float(spec.critical_weight if critical_mask[position] else spec.other_weight)
        for position in positions
    ]
    gated = is_qualified(trajectory.metadata) if spec.selector == "verifier_gated" else None
    return Selection(positions, weights, _stats(trajectory, spec, positions, gated))


def _candidates(trajectory: Trajectory, skipped: int) -> list[int]:
    """Return target positions without the first ``skipped`` tokens of each run of the student's.

    What the environment says stands between two turns, so a run is a turn.
    """
    mask = trajectory.model_mask
    chosen, place = [], 0
    for position, written in enumerate(mask):
        place = place + 1 if written else 0
        if place > skipped and position > 0:  # nothing predicts token 0
            chosen.append(position)
    return chosen


def aggregate_stats(stats: Iterable[SelectionStats]) -> dict[str, Any]:
    """Sum the counts of many selections.

    Args:
        stats: One per trajectory.

    Returns:
        JSON-ready counts. ``teacher_queried_position_ratio`` is selected over total positions; it
        says nothing about time. Where there is a gate, also how many trajectories it let through.
    """
    rows = [asdict(row) for row in stats]
    totals = {name: sum(row[name] for row in rows) for name in _SUMMED}
    by_type: Counter[str] = Counter()
    for row in rows:
        by_type.update(row["by_span_type"])
    total, selected = totals["total_model_tokens"], totals["selected_model_tokens"]
    gated = [row["gate_qualified"] for row in rows if row["gate_qualified"] is not None]
    return {
        "trajectories": len(rows),
        **totals,
        "teacher_queried_position_ratio": selected / total if total else 0.0,
        "selected_by_span_type": dict(sorted(by_type.items())),
        **({"gate_qualified_trajectories": sum(gated)} if gated else {}),
    }


_SUMMED = (
    "total_model_tokens",
    "selected_model_tokens",
    "total_critical_tokens",
    "selected_critical_tokens",
)


@dataclass(frozen=True)
class _Candidates:
    every: list[int]
    critical: list[int]
    other: list[int]
    metadata: Mapping[str, Any]


def _all_model_tokens(candidates: _Candidates, ratio: float, rng: random.Random) -> list[int]:
    del ratio, rng
    return candidates.every


def _tool_and_final(candidates: _Candidates, ratio: float, rng: random.Random) -> list[int]:
    del ratio, rng
    return candidates.critical


def _uniform_ratio(candidates: _Candidates, ratio: float, rng: random.Random) -> list[int]:
    return rng.sample(candidates.every, math.ceil(ratio * len(candidates.every)))


def _uniform_budget(candidates: _Candidates, ratio: float, rng: random.Random) -> list[int]:
    return rng.sample(candidates.every, math.floor(ratio * len(candidates.every)))


def _hybrid(candidates: _Candidates, ratio: float, rng: random.Random) -> list[int]:
    missing = math.ceil(ratio * len(candidates.every)) - len(candidates.critical)
    return candidates.critical + rng.sample(candidates.other, max(0, missing))


def _verifier_gated(candidates: _Candidates, ratio: float, rng: random.Random) -> list[int]:
    del ratio, rng
    return candidates.critical if is_qualified(candidates.metadata) else []


SELECTORS: dict[str, Callable[[_Candidates, float, random.Random], list[int]]] = {
    "all_model_tokens": _all_model_tokens,
    "tool_and_final": _tool_and_final,
    "uniform_ratio": _uniform_ratio,
    "uniform_budget": _uniform_budget,
    "hybrid": _hybrid,
    "verifier_gated": _verifier_gated,
}


def _capped(chosen: list[int], critical_mask: Sequence[bool], cap: int | None) -> list[int]:
    by_importance = sorted(chosen, key=lambda position: (not critical_mask[position], position))
    return sorted(by_importance[:cap])


def _stats(
    trajectory: Trajectory,
    spec: SelectionSpec,
    positions: list[int],
    gate_qualified: bool | None,
) -> SelectionStats:
    critical_mask, span_types = trajectory.critical_mask, trajectory.span_types
    candidates = trajectory.target_positions()
    return SelectionStats(
        selector=spec.selector,
        total_model_tokens=len(candidates),
        selected_model_tokens=len(positions),
        total_critical_tokens=sum(critical_mask[position] for position in candidates),
        selected_critical_tokens=sum(critical_mask[position] for position in positions),
        query_ratio=len(positions) / len(candidates) if candidates else 0.0,
        by_span_type=dict(Counter(str(span_types[position]) for position in positions)),
        gate_qualified=gate_qualified,
    )
