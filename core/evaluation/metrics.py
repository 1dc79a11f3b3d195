"""What a set of episodes amounts to. Rates without a denominator are None, never NaN."""

from collections import Counter
from collections.abc import Sequence
from math import comb
from typing import Any

from pydantic import BaseModel, ConfigDict

from core.evaluation.statistics import Interval, wilson
from core.trajectory.trajectory import TerminationReason, Trajectory

ENDED_ITSELF = (TerminationReason.FINAL_ANSWER, TerminationReason.EOS_WITHOUT_FINAL)
"""Reasons that are the student's own doing; every other one is a limit or a defect."""


class RolloutStats(BaseModel):
    """Counts and rates of some episodes. Each rate is over its own denominator."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rollouts: int
    solved: int
    success_rate: float | None
    """Solved episodes over all episodes."""
    success_interval: tuple[float, float] | None
    """Wilson's 95 % interval of ``success_rate``; several episodes of a task count as one."""
    pass_at_k: dict[str, float]
    """Share of tasks that one of k episodes solves, by k; empty where a task has one episode."""
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
    generated_tokens_mean: float | None
    """Sampled tokens per episode."""
    generated_tokens_per_solved: float | None
    ended_itself_rate: float | None
    """Episodes that the student ended, with an answer or with nothing, over all episodes."""
    kept_mass_mean: float | None
    """Mean probability kept by truncation; below 1 the rollouts are not exactly on-policy."""
    sampled_logprob_mean: float | None
    """Nats per sampled token under the sampling distribution."""
    sampled_entropy: float | None
    """Minus that: where nothing is truncated an unbiased estimate, from one token per position, of
    the entropy of the distribution that was sampled from, nats per token."""
    termination_reasons: dict[str, int]
    failure_categories: dict[str, int]
    counters: dict[str, int]


def _rate(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return _rate(sum(values), len(values))


def _interval(trajectories: Sequence[Trajectory]) -> Interval:
    """Return Wilson's interval with one observation per task: its episodes are no independent ones.

    The design effect of m equally reliable episodes of a task is at most m, so this never claims
    too much.
    """
    tasks = len({row.task_id for row in trajectories})
    solved = sum(row.solved for row in trajectories)
    return wilson(solved * tasks / len(trajectories), tasks)


def pass_at_k(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the share of tasks that k episodes solve at least once, for k = 1, 2, 4, … and n.

    1 − C(n−c, k)/C(n, k), c of n episodes of a task solved, averaged over tasks: the unbiased
    estimate of Chen et al. 2021 (arXiv 2107.03374), equation 1.

    Args:
        trajectories: Episodes of some tasks; n is the fewest that a task has.

    Returns:
        By k as text, as JSON has it; empty where n is below 2.
    """
    by_task: dict[str, list[bool]] = {}
    for row in trajectories:
        by_task.setdefault(row.task_id, []).append(row.solved)
    fewest = min(map(len, by_task.values()), default=0)
    if fewest < 2:
        return {}
    sizes = sorted({2**power for power in range(fewest.bit_length())} | {fewest})
    return {
        str(k): _mean([_pass(sum(s), len(s), k) for s in by_task.values()]) or 0.0 for k in sizes
    }


def _pass(solved: int, count: int, k: int) -> float:
    return 1.0 - comb(count - solved, k) / comb(count, k)


def _by_difficulty(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Trajectory]] = {}
    for row in trajectories:
        groups.setdefault(str(row.metadata.get("difficulty", "all")), []).append(row)
    table = {}
    for name, rows in sorted(groups.items()):
        solved = [row.solved for row in rows]
        interval = _interval(rows)
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
    """Return the statistics of some episodes; of none, every rate is None.

    An episode with branches counts once, by its last branch; tokens count in every branch.
    """
    episodes = [row for row in trajectories if row.is_whole]
    count, solved = len(episodes), sum(row.solved for row in episodes)
    interval = _interval(episodes) if count else None
    sampled_logprob = _mean([value for row in trajectories for value in row.logprobs])
    events = _summed_counters(episodes)
    generated = sum(sum(row.model_mask) for row in trajectories)
    executed = events.get("tool_execution_successes", 0) + events.get("tool_execution_errors", 0)
    return RolloutStats(
        rollouts=count,
        solved=solved,
        success_rate=_rate(solved, count),
        success_interval=(interval.lower, interval.upper) if interval else None,
        pass_at_k=pass_at_k(episodes),
        success_by_difficulty=_by_difficulty(episodes),
        parse_valid_tool_call_rate=_rate(
            events.get("parsed_tool_calls", 0), events.get("emitted_tool_calls", 0)
        ),
        tool_execution_success_rate=_rate(events.get("tool_execution_successes", 0), executed),
        final_answer_format_validity_rate=_rate(
            events.get("final_answers_format_valid", 0), events.get("final_answers_emitted", 0)
        ),
        turns_mean=_mean([len(row.turns) for row in episodes]),
        generated_tokens=generated,
        generated_tokens_mean=_rate(generated, count),
        generated_tokens_per_solved=_rate(generated, solved),
        kept_mass_mean=_mean([mass for row in trajectories for mass in row.kept_mass]),
        ended_itself_rate=_mean([row.termination_reason in ENDED_ITSELF for row in episodes]),
        sampled_logprob_mean=sampled_logprob,
        sampled_entropy=None if sampled_logprob is None else -sampled_logprob,
        termination_reasons=_categories([row.termination_reason.value for row in episodes]),
        failure_categories=_categories([row.verification.failure_category for row in episodes]),
        counters=events,
    )


def outcomes(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Return one row per episode: what a paired comparison between arms needs."""
    generated: Counter[str] = Counter()
    for row in trajectories:
        generated[row.episode_id] += sum(row.model_mask)
    return [
        {
            "task_id": row.task_id,
            "solved": row.solved,
            "reward": row.verification.reward,
            "termination_reason": row.termination_reason.value,
            "failure_category": row.verification.failure_category,
            "generated_tokens": generated[row.episode_id],
        }
        for row in trajectories
        if row.is_whole
    ]
