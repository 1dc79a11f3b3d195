"""Golden rows: vectors.md 2 and 3b (tasks) and 16 (codes of tool results)."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.base import OracleFinal, ToolCall, make_splits
from core.environments.registry import make_environment
from core.environments.sqlite_recovery import INTERVENTIONS, SqliteRecovery
from core.errors import InputError

RANK = (
    "SELECT p.portfolio AS answer, total(e.net_amount) AS total_value FROM transactions e "
    "JOIN account_transaction_links l ON l.transaction_ref = e.transaction_id "
    "JOIN accounts p ON p.account_id = l.account_ref GROUP BY p.portfolio "
    "ORDER BY total_value DESC, answer ASC LIMIT 1"
)
FEES = (
    "SELECT total(e.fee_amount) AS answer FROM bookings e JOIN members p "
    "ON p.member_id = e.member_ref WHERE p.display_name = '{}'"
)
VISITS = (
    "SELECT total(e.visit_cost) AS answer FROM appointments e JOIN patient_appointment_map l "
    "ON l.appointment_ref = e.appointment_id JOIN patients p ON p.patient_id = l.patient_ref "
    "WHERE p.patient_alias = 'Elm-6'"
)
HOSTS = (
    "SELECT total(e.booking_value) AS answer FROM reservations e JOIN host_reservation_links l "
    "ON l.reservation_ref = e.reservation_id JOIN hosts p ON p.host_id = l.host_ref "
    "WHERE p.host_alias = 'Dahlia-3'"
)
INVOICES = (
    "SELECT count(*) AS answer FROM invoices e JOIN vendors p ON p.vendor_id = e.vendor_ref "
    "WHERE p.market = 'coral' AND e.invoice_status = 'active'"
)

REFRESH, STALE, QUIET = INTERVENTIONS


def counted(events, column, state):
    return f"SELECT count(*) AS answer FROM {events} WHERE {column} = '{state}'"


# Seed, split and index; answer, template, database seed, kind of trouble; reference query.
TASKS = [
    (
        (8128, "train", 0),
        ("8", "train_customers_orders", 8128024384, REFRESH),
        counted("orders", "order_state", "closed"),
    ),
    ((8128, "train", 3), ("0", "train_vendors_invoices", 8128024678, REFRESH), INVOICES),
    (
        (8128, "train", 4),
        ("10", "train_customers_orders", 8128024772, STALE),
        counted("orders", "order_state", "closed"),
    ),
    (
        (8128, "train", 5),
        ("1473.0", "train_members_bookings", 8128024870, QUIET),
        FEES.format("Dahlia-7"),
    ),
    (
        (8128, "eval", 0),
        ("7", "eval_users_subscriptions", 8128024384, REFRESH),
        counted("subscriptions", "subscription_state", "active"),
    ),
    ((8128, "eval", 1), ("327.0", "eval_patients_appointments", 8128024482, STALE), VISITS),
    (
        (8128, "test", 0),
        ("7", "test_readers_loans", 8128024384, REFRESH),
        counted("loans", "loan_state", "active"),
    ),
    ((8128, "test", 1), ("1491.0", "test_hosts_reservations", 8128024482, STALE), HOSTS),
    (
        (20260801, "train", 0),
        ("10", "train_customers_orders", 20260861782403, REFRESH),
        counted("orders", "order_state", "pending"),
    ),
    (
        (20260801, "train", 1),
        ("1021.0", "train_members_bookings", 20260861782501, STALE),
        FEES.format("Dahlia-2"),
    ),
    (
        (20260801, "train", 2),
        ("amber", "train_accounts_transactions", 20260861782599, QUIET),
        RANK,
    ),
    (
        (20260801, "test", 2000000),
        ("6", "test_readers_loans", 20261055782403, QUIET),
        counted("loans", "loan_state", "closed"),
    ),
]

DIGESTS = {
    (20260801, 0, 96, 128): {
        "eval": "1c941a13b4671144e6cee709e8d0ea85a42b5cda4903120ef0732867cfa116f0",
        "test": "56d33114cd146a03577be4abcd0bd681012399e41701071aa272db6e7845d578",
    },
    (8128, 12, 12, 12): {
        "train": "a87904380ee24e7e5daaefd62ecd978373f49183fb91f19bcc13daf377089e4e",
        "eval": "09647b18723ad1087ae5819805307d00999b9a4d0ce6515f46ef0bd2a6e1b211",
        "test": "15fc938309c5564bd1665724ae79d847c0d6558da468bb0d297db233c9009340",
    },
}

MIXED_DIGESTS = {
    "train": "eb2388998b7e1e54c203d190a9abe7cf3304ccbae4747cb4f22176699702f707",
    "eval": "b389b2bd5f70545827c9dddbadb006651399fd9cc59fa07e30577ede5eae86af",
    "test": "e5d4f21579ca83922cff24717f087bac667cc84d91accfeea3571d16d3a62392",
}

KINDS = ("filter_count", "lookup_join_sum", "group_rank", "multi_filter")


def digest(tasks):
    rows = (
        f"{t.task_id}\t{t.answer}\t{json.dumps(t.metadata, sort_keys=True, separators=(',', ':'))}"
        for t in tasks
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def generated(world, index, seed=8128, split="train"):
    return world.generate_task(index, seed=seed, difficulty="hard", split=split)


def started(index):
    world = SqliteRecovery()
    task = generated(world, index)
    world.reset(task)
    return world, task


def played(index):
    world, task = started(index)
    *calls, final = world.oracle_actions(task)
    return [call.name for call in calls], [world.step(call) for call in calls], world, final


@pytest.mark.parametrize(("which", "known", "sql"), TASKS)
def test_tasks_are_the_known_ones(which, known, sql):
    seed, split, index = which
    task = generated(SqliteRecovery(), index, seed, split)
    facts = task.metadata
    named = [facts[key] for key in ("template_id", "database_seed", "intervention_kind")]
    assert (task.answer, *named) == known
    assert task.task_id == f"sql-recovery-{split}-{index}"
    assert facts["task_kind"] == KINDS[index % 4]
    assert facts["expected_tool_sequence_class"] == INTERVENTIONS[named[2]]
    assert facts["reference_sql"] == sql


@pytest.mark.parametrize("case", DIGESTS)
def test_splits_are_the_known_ones(case):
    seed, *counts = case
    sizes = dict(zip(("train", "eval", "test"), counts, strict=True))
    splits = make_splits(SqliteRecovery(), sizes, seed, "hard")
    assert {name: digest(splits[name]) for name in DIGESTS[case]} == DIGESTS[case]


def test_splits_with_mixed_schemas_are_the_known_ones_and_share_no_prompt_and_no_schema():
    sizes = dict.fromkeys(MIXED_DIGESTS, 12)
    splits = make_splits(SqliteRecovery(schemas="mixed"), sizes, 8128, "hard")
    assert {name: digest(tasks) for name, tasks in splits.items()} == MIXED_DIGESTS
    many = make_splits(SqliteRecovery(schemas="mixed"), dict.fromkeys(sizes, 96), 300, "hard")
    tasks = [task for split in many.values() for task in split]
    assert len({task.prompt for task in tasks}) == len(tasks) == 288
    assert len({task.metadata["template_digest"] for task in tasks}) == 288


def test_schemas_apart_are_the_default():
    assert SqliteRecovery().schemas == "apart"
    tasks = [generated(SqliteRecovery(schemas=kind), 7) for kind in ("apart", "mixed")]
    assert generated(SqliteRecovery(), 7) == tasks[0] != tasks[1]


def test_a_controlled_refresh_meets_the_first_valid_query():
    names, results, world, final = played(0)
    assert names == ["schema", "query", "schema", "query"]
    assert [result.ok for result in results] == [True, False, True, True]
    refused = results[1]
    assert (refused.error_code, refused.retryable, refused.intervention) == (
        "SCHEMA_REFRESH_REQUIRED",
        True,
        True,
    )
    assert refused.metadata == {"intervention_kind": "controlled_schema_refresh", "occurrence": 1}
    assert results[3].result == '[{"answer": 8}]'
    assert [result.state_id for result in results] == [f"recovery:{n}" for n in range(1, 5)]
    assert world.verify(final.answer).reward == 1.0


def test_an_invalid_query_does_not_use_up_the_refresh():
    world, _ = started(0)
    queries = ["select nope", "delete from orders", "select 1", "select 1"]
    results = [world.step(ToolCall("query", {"sql": sql})) for sql in queries]
    assert [result.error_code for result in results] == [
        "SQL_EXECUTION_ERROR",
        "SQL_EXECUTION_ERROR",
        "SCHEMA_REFRESH_REQUIRED",
        None,
    ]


def test_a_natural_error_comes_from_the_quoted_query():
    names, results, world, final = played(1)
    assert names == ["query", "schema", "query"]
    failed = results[0]
    assert (failed.ok, failed.error_code, failed.retryable, failed.intervention) == (
        False,
        "SQL_EXECUTION_ERROR",
        True,
        False,
    )
    assert failed.metadata == {"source": "sqlite"}
    assert "SELECT stale_missing_column FROM bookings" in world.task.prompt
    assert world.verify(final.answer).reward == 1.0


def test_nothing_goes_wrong_by_design_in_every_third_task():
    names, results, _, _ = played(2)
    assert names == ["schema", "query"]
    assert all(result.ok for result in results)


@pytest.mark.parametrize(
    ("call", "code", "category"),
    [
        (ToolCall("query", {}), "INVALID_SQL_CALL", "invalid_tool_call"),
        (ToolCall("query", {"sql": " "}), "INVALID_SQL_CALL", "invalid_tool_call"),
        (ToolCall("nope", {}), "UNKNOWN_TOOL", "unknown_tool"),
    ],
)
def test_a_wrong_call_is_not_worth_repeating(call, code, category):
    result = started(0)[0].step(call)
    assert (result.error_code, result.retryable, result.failure_category) == (code, False, category)


def test_a_second_episode_is_refused_once_again():
    world, task = started(0)
    query = ToolCall("query", {"sql": "select 1"})
    assert [world.step(query).ok for _ in range(2)] == [False, True]
    world.reset(task)
    assert [world.step(query).ok for _ in range(2)] == [False, True]


def test_trajectories_do_not_carry_the_solution():
    world, task = started(5)
    kept = set(world.trajectory_metadata(task))
    assert set(task.metadata) - kept == {"db_seed", "reference_sql", "natural_error_sql"}
    assert task.answer in world.privileged_context(task)


@pytest.mark.parametrize("index", range(3))
def test_only_episodes_in_which_something_goes_wrong_pass_the_gate(index):
    world, task = started(index)
    facts = world.trajectory_metadata(task)
    wrong = task.metadata["intervention_kind"] != "none"
    assert (facts["policy_sensitive"], facts["policy_gate_qualified"]) == (wrong, wrong)
    assert "policy_sensitive" not in task.metadata  # the tasks' digests are those of before


@given(
    st.integers(0, 10**6),
    st.sampled_from(["train", "eval", "test"]),
    st.sampled_from(["apart", "mixed"]),
)
def test_the_oracle_solves_every_task(index, split, schemas):
    world = SqliteRecovery(schemas=schemas)
    task = generated(world, index, 3, split)
    world.reset(task)
    *calls, final = world.oracle_actions(task)
    errors = [world.step(call).error_code for call in calls]
    wanted = {
        "controlled_schema_refresh": [None, "SCHEMA_REFRESH_REQUIRED", None, None],
        "natural_sql_error": ["SQL_EXECUTION_ERROR", None, None],
        "none": [None, None],
    }
    assert errors == wanted[task.metadata["intervention_kind"]]
    assert final == OracleFinal(task.answer)
    assert world.verify(final.answer).reward == 1.0


@given(st.text())
def test_the_verifier_is_total(answer):
    assert started(1)[0].verify(answer).reward in (0.0, 1.0)


def test_schemas_of_another_kind_are_refused():
    with pytest.raises(InputError, match="schemas is 'own'") as refused:
        make_environment("sqlite_recovery", schemas="own")
    assert refused.value.hint == "Choose apart or mixed."
