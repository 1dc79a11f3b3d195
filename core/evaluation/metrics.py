"""What a set of episodes amounts to. Rates without a denominator are None, never NaN."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from core.evaluation.statistics import wilson
from core.trajectory.trajectory import Trajectory


class RolloutStats(BaseModel):
    """Counts and rates of some episodes. Each rate is over its own denominator."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rollouts: int
    solved: int
    success_rate: float | None
    """Solved episodes over all episodes."""
    success_interval: tuple[float, float] | None
    """Wilson's 95 % interval of ``success_rate``."""
    success_by_difficulty: dict[str, dict[str, float]]
    """Per difficulty: rollouts, solved, rate and its Wilson interval."""
    parse_valid_tool_call_rate: float | None
    """Parsed tool calls over emitted ones."""
    tool_execution_success_rate: float | None
    """Tool executions that succeeded over those attempted."""
    final_answer_format_validity_rate: float | None
    """Well-formed final answers over emitted ones."""
    turns_mean: float | None
    generated_tokens: int
    generated_tokens_per_solved: float | None
    kept_mass_mean: float | None
    """Mean probability kept by truncation; below 1 the rollouts are not exactly on-policy."""
    sampled_logprob_mean: float | None
    """Nats per sampled token under the sampling distribution."""
    termination_reasons: dict[str, int]
    failure_categories: dict[str, int]
    counters: dict[str, int]


def _rate(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return _rate(sum(values), len(values))


def _by_difficulty(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[bool]] = {}
    for row in trajectories:
        groups.setdefault(str(row.metadata.get("difficulty", "all")), []).append(row.solved)
    table = {}
    for name, solved in sorted(groups.items()):
        interval = wilson(sum(solved), len(solved))
        table[name] = {
            "rollouts": len(solved),
            "solved": sum(solved),
            "rate": interval.estimate,
            "lower": interval.lower,
            "upper": interval.upper,
        }
    return table


def _summed_counters(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in trajectories:
        total.update(row.counters.model_dump())
    return dict(sorted(total.items()))


def _categories(values: Sequence[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def summarise(trajectories: Sequence[Trajectory]) -> RolloutStats:
    """Return the statistics of some episodes; of none, every rate is None."""
    count, solved = len(trajectories), sum(row.solved for row in trajectories)
    interval = wilson(solved, count) if count else None
    events = _summed_counters(trajectories)
    generated = sum(sum(row.model_mask) for row in trajectories)
    executed = events.get("tool_execution_successes", 0) + events.get("tool_execution_errors", 0)
    return RolloutStats(
        rollouts=count,
        solved=solved,
        success_rate=_rate(solved, count),
        success_interval=(interval.lower, interval.upper) if interval else None,
        success_by_difficulty=_by_difficulty(trajectories),
        parse_valid_tool_call_rate=_rate(
            events.get("parsed_tool_calls", 0), events.get("emitted_tool_calls", 0)
        ),
        tool_execution_success_rate=_rate(events.get("tool_execution_successes", 0), executed),
        final_answer_format_validity_rate=_rate(
            events.get("final_answers_format_valid", 0), events.get("final_answers_emitted", 0)
        ),
        turns_mean=_mean([len(row.turns) for row in trajectories]),
        generated_tokens=generated,
        generated_tokens_per_solved=_rate(generated, solved),
        kept_mass_mean=_mean([mass for row in trajectories for mass in row.kept_mass]),
        sampled_logprob_mean=_mean([value for row in trajectories for value in row.logprobs]),
        termination_reasons=_categories([row.termination_reason.value for row in trajectories]),
        failure_categories=_categories([row.verification.failure_category for row in trajectories]),
        counters=events,
    )


def outcomes(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Return one row per episode: what a paired comparison between arms needs."""
    return [
        {
            "task_id": row.task_id,
            "solved": row.solved,
            "reward": row.verification.reward,
            "termination_reason": row.termination_reason.value,
            "failure_category": row.verification.failure_category,
            "generated_tokens": sum(row.model_mask),
        }
        for row in trajectories
    ]
