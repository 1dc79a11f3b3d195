"""What one arm did on one seed: a row per task, a curve, and what it cost. Needs no torch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.evaluation.recovery import recovery
from core.trajectory.trajectory import Trajectory

Json = dict[str, Any]

RECOVERY = (
    "had_tool_error",
    "first_query_failed",
    "injected_error_observed",
    "natural_error_observed",
    "recovered_after_tool_error",
    "schema_call_after_error",
    "repeated_same_failed_call",
    "turns_after_first_error",
    "turns_to_recovery",
    "tokens_after_first_error",
    "intervention_kind",
)
"""Columns of an episode's recovery that a row of its task carries."""


def task_rows(trajectories: Sequence[Trajectory], split: str) -> list[Json]:
    """Return one row per episode of an evaluation, in its order.

    Args:
        trajectories: Episodes; the branches of one follow each other and make one row.
        split: Which tasks they are.
    """
    recovered = recovery(trajectories)
    notes = recovered.episodes if recovered is not None else []
    calm = {"had_tool_error": False, "recovered_after_tool_error": False}
    tokens: dict[str, int] = {}
    for one in trajectories:
        tokens[one.episode_id] = tokens.get(one.episode_id, 0) + sum(one.model_mask)
    seen: dict[str, int] = {}
    rows = []
    for place, one in enumerate(row for row in trajectories if row.is_whole):
        sample = seen[one.task_id] = seen.get(one.task_id, -1) + 1
        note = notes[place].model_dump(mode="json") if notes else calm
        rows.append(
            {
                "task_id": one.task_id,
                "sample": sample,
                "split": split,
                "difficulty": str(one.metadata.get("difficulty", "")),
                "success": one.solved,
                "reward": one.verification.reward,
                "turns": len(one.turns),
                "generated_tokens": tokens[one.episode_id],
                "tool_calls": one.counters.emitted_tool_calls,
                "tool_errors": one.counters.tool_execution_errors,
                "termination_reason": one.termination_reason.value,
                "failure_category": one.verification.failure_category,
                "trajectory_id": one.trajectory_id,
                **{name: note.get(name) for name in RECOVERY},
            }
        )
    return rows


def cost(
    steps: Iterable[Mapping[str, Any]],
    rollouts: Iterable[Mapping[str, Any]],
    budget: Mapping[str, Any] | None,
) -> Json:
    """Return what an arm spent after its cold start, in counts; seconds are in the records.

    Args:
        steps: Rows of its optimizer steps.
        rollouts: Statistics of the batches that its student sampled, a frozen data set included.
        budget: What its budget says; None where it has none.
    """
    rows, batches = list(steps), list(rollouts)
    return {
        "optimizer_steps": len(rows),
        "selected_tokens": sum(row["selected_positions"] for row in rows),
        "generated_tokens": sum(batch["generated_tokens"] for batch in batches),
        "episodes": sum(batch["rollouts"] for batch in batches),
        "budget": dict(budget) if budget is not None else None,
    }
