"""What episodes do after a tool has failed: whether they recover, how soon, and at what cost.

Everything follows from typed records of calls and results, spans and verdicts; no text is searched.
Rates are over their own denominators and None where that is 0.
"""

import json
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from core.trajectory.trajectory import ToolCallRecord, ToolResultRecord, Trajectory

QUERY, SCHEMA = "query", "schema"
"""Tools of the SQL worlds; elsewhere the numbers about them are 0 or None."""
SQL_ERROR = "SQL_EXECUTION_ERROR"

SUBSETS = {
    "controlled_intervention": "controlled_schema_refresh",
    "natural_error": "natural_sql_error",
    "no_intervention": "none",
}
"""Name of a subset, and the kind of trouble of its tasks."""


class EpisodeRecovery(BaseModel):
    """One episode after its first failing tool result."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    task_id: str
    had_tool_error: bool
    """Whether any tool result failed."""
    first_query_failed: bool
    """Whether the first call of ``query`` failed."""
    injected_error_observed: bool
    """Whether a result failed by the experiment's hand."""
    natural_error_observed: bool
    """Whether a query failed on its own account."""
    recovered_after_tool_error: bool
    """Whether a result failed and the task was solved all the same."""
    success_given_first_query_error: bool | None
    """Whether the task was solved; None unless the first query failed."""
    schema_call_after_error: bool
    """Whether the schema was read after the first failure."""
    repeated_same_failed_call: bool
    """Whether an identical call failed twice."""
    turns_after_first_error: int
    """Turns after that of the first failure."""
    turns_to_recovery: int | None
    """Turns from the first failure to the solving answer; None where there is none."""
    distinct_tool_errors: int
    """Different error codes, or error texts where there is no code."""
    query_calls: int
    """Calls of ``query`` with a result."""
    valid_sql_executions: int
    """Those that succeeded."""
    valid_sql_execution_rate: float | None
    """Those that succeeded over all."""
    tokens_after_first_error: int
    """Tokens that the student wrote in those turns."""
    intervention_kind: str
    """Kind of trouble that the task was made with."""
    strict_task_success: bool
    """Whether the task was solved."""


class RecoveryRates(BaseModel):
    """Some episodes together."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tasks: int
    strict_task_success_rate: float | None
    """Solved episodes over all."""
    tasks_with_tool_error: int
    """Episodes with a failing result: the denominator of the next two."""
    recovery_after_error_rate: float | None
    """Solved ones among them."""
    schema_call_after_error_rate: float | None
    """Those among them that read the schema afterwards."""
    success_given_first_query_error: float | None
    """Solved episodes over those whose first query failed."""
    valid_sql_execution_rate: float | None
    """Queries that succeeded over all queries of all episodes."""
    turns_to_recovery: float | None
    """Mean over the episodes that recovered."""
    injected_error_tasks: int
    """Episodes that met an error by the experiment's hand."""
    natural_error_tasks: int
    """Episodes in which a query failed on its own account."""
    repeated_same_failed_call_tasks: int
    """Episodes in which an identical call failed twice."""
    tokens_after_first_error_total: int
    """Sum over all episodes."""


class Recovery(RecoveryRates):
    """All episodes of an evaluation, in parts and one by one."""

    controlled_intervention: RecoveryRates
    """Tasks whose first valid query is refused once."""
    natural_error: RecoveryRates
    """Tasks whose prompt quotes an outdated query."""
    no_intervention: RecoveryRates
    """Tasks without trouble by design."""
    episodes: list[EpisodeRecovery]
    """In the order of the evaluation."""


_Exchange = tuple[int, ToolCallRecord, ToolResultRecord]


def episode_recovery(trajectory: Trajectory, earlier: Sequence[Trajectory] = ()) -> EpisodeRecovery:
    """Return what an episode did after its first failing tool result.

    Calls count in the order in which they ran: also within a turn that holds several.

    Args:
        trajectory: The episode; where it has branches, the last, which tells of all its turns.
        earlier: The other branches, which hold the rest of its tokens.
    """
    exchanges = [
        (turn.turn_id, call, result)
        for turn in trajectory.turns
        for call, result in zip(turn.tool_calls, turn.tool_results, strict=False)
    ]
    failed = [place for place, (_, _, result) in enumerate(exchanges) if not result.ok]
    results = [exchanges[place][2] for place in failed]
    later = exchanges[failed[0] + 1 :] if failed else []
    queries = [result for _, call, result in exchanges if call.name == QUERY]
    first_turn = exchanges[failed[0]][0] if failed else None
    valid = sum(result.ok for result in queries)
    first_query_failed = bool(queries) and not queries[0].ok
    last_turn = trajectory.turns[-1].turn_id if trajectory.turns else 0
    recovered = bool(failed) and trajectory.solved
    signatures = [_signature(exchanges[place]) for place in failed]
    return EpisodeRecovery(
        task_id=trajectory.task_id,
        had_tool_error=bool(failed),
        first_query_failed=first_query_failed,
        injected_error_observed=any(result.intervention for result in results),
        natural_error_observed=any(
            result.error_code == SQL_ERROR and not result.intervention for result in results
        ),
        recovered_after_tool_error=recovered,
        success_given_first_query_error=trajectory.solved if first_query_failed else None,
        schema_call_after_error=any(call.name == SCHEMA for _, call, _ in later),
        repeated_same_failed_call=len(set(signatures)) < len(signatures),
        turns_after_first_error=_turns_after(trajectory, first_turn),
        turns_to_recovery=last_turn - first_turn if recovered and first_turn is not None else None,
        distinct_tool_errors=len({result.error_code or f": {result.error}" for result in results}),
        query_calls=len(queries),
        valid_sql_executions=valid,
        valid_sql_execution_rate=_rate(valid, len(queries)),
        tokens_after_first_error=_tokens_after([*earlier, trajectory], first_turn),
        intervention_kind=str(trajectory.metadata.get("intervention_kind", "none")),
        strict_task_success=trajectory.solved,
    )


def recovery(trajectories: Sequence[Trajectory]) -> Recovery | None:
    """Return what some episodes did after failing tool results; None where no result failed.

    An episode with branches counts once; tokens count in every branch.
    """
    earlier: dict[str, list[Trajectory]] = {}
    for row in trajectories:
        if not row.is_whole:
            earlier.setdefault(row.episode_id, []).append(row)
    episodes = [
        episode_recovery(row, earlier.get(row.episode_id, ()))
        for row in trajectories
        if row.is_whole
    ]
    if not any(episode.had_tool_error for episode in episodes):
        return None
    parts = {
        name: _rates([episode for episode in episodes if episode.intervention_kind == kind])
        for name, kind in SUBSETS.items()
    }
    whole = _rates(episodes).model_dump()
    return Recovery.model_validate({**whole, **parts, "episodes": episodes})


def _rates(episodes: Sequence[EpisodeRecovery]) -> RecoveryRates:
    failing = [episode for episode in episodes if episode.had_tool_error]
    solved_first = [
        episode.success_given_first_query_error
        for episode in episodes
        if episode.success_given_first_query_error is not None
    ]
    turns = [e.turns_to_recovery for e in episodes if e.turns_to_recovery is not None]
    queries = sum(episode.query_calls for episode in episodes)
    return RecoveryRates(
        tasks=len(episodes),
        strict_task_success_rate=_rate(sum(e.strict_task_success for e in episodes), len(episodes)),
        tasks_with_tool_error=len(failing),
        recovery_after_error_rate=_rate(
            sum(episode.recovered_after_tool_error for episode in failing), len(failing)
        ),
        schema_call_after_error_rate=_rate(
            sum(episode.schema_call_after_error for episode in failing), len(failing)
        ),
        success_given_first_query_error=_rate(sum(solved_first), len(solved_first)),
        valid_sql_execution_rate=_rate(sum(e.valid_sql_executions for e in episodes), queries),
        turns_to_recovery=_rate(sum(turns), len(turns)),
        injected_error_tasks=sum(episode.injected_error_observed for episode in episodes),
        natural_error_tasks=sum(episode.natural_error_observed for episode in episodes),
        repeated_same_failed_call_tasks=sum(e.repeated_same_failed_call for e in episodes),
        tokens_after_first_error_total=sum(e.tokens_after_first_error for e in episodes),
    )


def _rate(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _signature(exchange: _Exchange) -> str:
    call = exchange[1]
    return json.dumps([call.name, call.arguments], sort_keys=True)


def _turns_after(trajectory: Trajectory, first_turn: int | None) -> int:
    if first_turn is None:
        return 0
    return sum(turn.turn_id > first_turn for turn in trajectory.turns)


def _tokens_after(branches: Sequence[Trajectory], first_turn: int | None) -> int:
    if first_turn is None:
        return 0
    return sum(
        span.end - span.start
        for branch in branches
        for span in branch.spans
        if span.is_model and span.turn_id is not None and span.turn_id > first_turn
    )
