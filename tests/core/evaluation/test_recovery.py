"""Golden rows: vectors.md 16. The count of tokens there is of the peer's vocabulary, not ours."""

import pytest

from core.environments.protocol import render_tool_call
from core.environments.registry import make_environment
from core.evaluation.recovery import episode_recovery, recovery
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episode import Episode
from core.rollout.limits import EpisodeLimits
from core.rollout.oracle import oracle_trajectory
from core.rollout.turns import GeneratedTurn

CODEC = ToyTokenizer()

CONTROLLED = {
    "had_tool_error": True,
    "first_query_failed": True,
    "injected_error_observed": True,
    "natural_error_observed": False,
    "recovered_after_tool_error": True,
    "success_given_first_query_error": True,
    "schema_call_after_error": True,
    "repeated_same_failed_call": False,
    "turns_after_first_error": 3,
    "turns_to_recovery": 3,
    "distinct_tool_errors": 1,
    "query_calls": 2,
    "valid_sql_executions": 1,
    "valid_sql_execution_rate": 0.5,
    "intervention_kind": "controlled_schema_refresh",
    "strict_task_success": True,
}
NATURAL = CONTROLLED | {
    "injected_error_observed": False,
    "natural_error_observed": True,
    "intervention_kind": "natural_sql_error",
}
QUIET = {
    "had_tool_error": False,
    "first_query_failed": False,
    "injected_error_observed": False,
    "natural_error_observed": False,
    "recovered_after_tool_error": False,
    "success_given_first_query_error": None,
    "schema_call_after_error": False,
    "repeated_same_failed_call": False,
    "turns_after_first_error": 0,
    "turns_to_recovery": None,
    "distinct_tool_errors": 0,
    "query_calls": 1,
    "valid_sql_executions": 1,
    "valid_sql_execution_rate": 1.0,
    "tokens_after_first_error": 0,
    "intervention_kind": "none",
    "strict_task_success": True,
}


def started(index, **params):
    world = make_environment("sqlite_recovery", **params)
    return world, world.generate_task(index, seed=8128, difficulty="hard", split="train")


def solved(index):
    return oracle_trajectory(*started(index), CODEC)


def played(index, *calls, **params):
    world, task = started(index, **params)
    episode = Episode(world, task, CODEC, EpisodeLimits(len(calls), 9**9, 9**9, 9, 9))
    episode.begin()
    for text in calls:
        episode.take(GeneratedTurn(0, CODEC.encode(text), [], None, "stop"))
    return episode.build({}, trajectory_id=f"e{index}")


def query(sql):
    return render_tool_call("query", {"sql": sql})


@pytest.mark.parametrize(("index", "known"), [(0, CONTROLLED), (1, NATURAL), (2, QUIET)])
def test_the_oracle_recovers_as_it_is_known_to(index, known):
    row = episode_recovery(solved(index)).model_dump()
    assert {name: row[name] for name in known} == known
    assert row["task_id"] == f"sql-recovery-train-{index}"


def test_tokens_after_the_first_error_are_the_student_s_own():
    trajectory = solved(0)
    blocks = [span for span in trajectory.spans if span.is_model]
    assert [span.tool_name for span in blocks] == ["schema", "query", "schema", "query", None]
    sizes = [span.end - span.start for span in blocks]
    assert episode_recovery(trajectory).tokens_after_first_error == sum(sizes[2:])
    assert sizes[2] == len(CODEC.encode(render_tool_call("schema", {})))


def test_the_same_failure_twice_is_told_from_a_retry_that_works():
    twice = episode_recovery(played(2, query("select nope"), query("select nope")))
    assert (twice.repeated_same_failed_call, twice.distinct_tool_errors) == (True, 1)
    assert (twice.recovered_after_tool_error, twice.turns_to_recovery) == (False, None)
    other = episode_recovery(played(2, query("select nope"), render_tool_call("oven", {})))
    assert (other.repeated_same_failed_call, other.distinct_tool_errors) == (False, 2)
    assert other.schema_call_after_error is False


def test_order_counts_within_a_turn_of_several_calls():
    schema = render_tool_call("schema", {})
    several = {"protocol_version": "v3", "max_calls_per_turn": 2}
    before = episode_recovery(played(2, schema + query("select nope"), **several))
    after = episode_recovery(played(2, query("select nope") + schema, **several))
    assert (before.schema_call_after_error, after.schema_call_after_error) == (False, True)
    assert after.turns_after_first_error == 0


def test_rates_have_their_own_denominators():
    failed = played(3, query("select nope"))
    whole = recovery([solved(0), solved(1), solved(2), failed])
    assert whole is not None
    assert (whole.tasks, whole.tasks_with_tool_error) == (4, 3)
    assert whole.strict_task_success_rate == 0.75
    assert whole.recovery_after_error_rate == pytest.approx(2 / 3)
    assert whole.success_given_first_query_error == pytest.approx(2 / 3)
    assert whole.schema_call_after_error_rate == pytest.approx(2 / 3)
    assert whole.valid_sql_execution_rate == 0.5
    assert whole.turns_to_recovery == 3
    assert (whole.injected_error_tasks, whole.natural_error_tasks) == (1, 2)
    parts = (whole.controlled_intervention, whole.natural_error, whole.no_intervention)
    assert [part.tasks for part in parts] == [2, 1, 1]
    assert [part.recovery_after_error_rate for part in parts] == [0.5, 1.0, None]
    assert whole.episodes[0].task_id == "sql-recovery-train-0"


def test_an_episode_in_branches_counts_once_and_its_tokens_in_every_branch():
    episode = solved(0)
    first, last = (
        [span for span in episode.spans if (span.turn_id or 0) // 3 == part] for part in (0, 1)
    )
    place = {"parent_id": episode.trajectory_id, "branches": 2}
    earlier = {"trajectory_id": "b0", "branch_index": 0, "spans": first, "turns": episode.turns[:3]}
    branches = [
        episode.model_copy(update=place | earlier),
        episode.model_copy(update=place | {"branch_index": 1, "spans": last}),
    ]
    assert recovery([*branches, solved(2)]) == recovery([episode, solved(2)])


def test_worlds_in_which_nothing_fails_have_no_recovery():
    world = make_environment("calculator")
    task = world.generate_task(1, seed=7, difficulty="hard", split="train")
    assert recovery([oracle_trajectory(world, task, CODEC)]) is None
    assert recovery([]) is None
