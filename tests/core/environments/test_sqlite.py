"""Golden rows: vectors.md 2 and 3b (tasks), 4 (rows) and 5 (tools and verifier)."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.base import OracleFinal, ToolCall, make_splits
from core.environments.sqlite import SqliteQuestions, build_tables

COUNT = "SELECT count(*) AS n FROM orders WHERE status = '{}'"
SUM = (
    "SELECT total(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer_id "
    "WHERE c.name = '{}'"
)
GROUP = (
    "SELECT c.city AS city, total(o.amount) AS total FROM orders o JOIN customers c "
    "ON c.id = o.customer_id GROUP BY c.city ORDER BY total DESC, c.city ASC LIMIT 1"
)

TASKS = [
    ("easy", 0, "3", "count", 43057, COUNT.format("cancelled")),
    ("easy", 2, "4", "count", 43059, COUNT.format("pending")),
    ("easy", 3, "3", "count", 43060, COUNT.format("cancelled")),
    ("easy", 2000000, "3", "count", 2043057, COUNT.format("cancelled")),
    ("medium", 0, "0", "join_sum", 43057, SUM.format("Eli4")),
    ("medium", 1, "707", "join_sum", 43058, SUM.format("Cyd1")),
    ("medium", 3, "1226", "join_sum", 43060, SUM.format("Hal4")),
    ("medium", 2000000, "15", "join_sum", 2043057, SUM.format("Jem1")),
    ("hard", 0, "Lyon", "group_by", 43057, GROUP),
    ("hard", 1, "Split", "group_by", 43058, GROUP),
    ("hard", 2, "Split", "group_by", 43059, GROUP),
    ("hard", 1000000, "Porto", "group_by", 1043057, GROUP),
]

DIGESTS = {
    ("easy", 16, 8, 8): {
        "train": "4b2cebd551976633824940647cd3a4e83f7b8a464a57058028dc65f3e1a5c22a",
        "eval": "a8ec26bcecef7452491ae3076adbebf7f3cdfdc9bf21f76bd119ffb27827c600",
        "test": "50af83db0ace0d1440d5a88b4447f4c511614962ab17743e26e81766af0e9f72",
    },
    ("medium", 0, 8, 0): {
        "eval": "9571350e21963aa9a9fbf6a0b565f14fac2525e94910bff61ef4cff8f85e6e62"
    },
    ("hard", 16, 0, 8): {
        "train": "9ce6246bc2bb34a5cda494fe2509e448453a0104dfc318d8d602b0b6eea9d206",
        "test": "ff7660e291ee82f46c910e82a6374c9eeedf15f427122e3ac04d8b39b204d6db",
    },
}

CUSTOMERS = (
    '[{"id": 1, "name": "Cyd1", "city": "Lyon"}, {"id": 2, "name": "Hal2", "city": "Porto"}, '
    '{"id": 3, "name": "Ada3", "city": "Osaka"}, {"id": 4, "name": "Fay4", "city": "Split"}]'
)

STEPS = [
    ({"sql": "SELECT count(*) AS n FROM orders"}, '[{"n": 12}]', None),
    ({"sql": "SELECT * FROM customers"}, CUSTOMERS, None),
    ({"sql": "select 1"}, '[{"1": 1}]', None),
    ({"sql": "INSERT INTO orders VALUES (1,1,1,'x')"}, "", "tool_error"),
    ({"sql": "PRAGMA table_info(orders)"}, "", "tool_error"),
    ({"sql": "SELECT 1; SELECT 2"}, "", "tool_error"),
    ({"sql": "SELECT 1;"}, '[{"1": 1}]', None),
    ({"sql": "SELECT nope FROM orders"}, "", "tool_error"),
    ({"sql": ""}, "", "invalid_tool_call"),
    ({}, "", "invalid_tool_call"),
    ({"sql": 5}, "", "invalid_tool_call"),
    ({"sql": f"SELECT {'1' * 400}"}, "", "tool_error"),
    ({"sql": "SELECT substr(name,1,2) FROM customers LIMIT 1"}, "", "tool_error"),
]


def digest(tasks):
    rows = (
        f"{t.task_id}\t{t.answer}\t{json.dumps(t.metadata, sort_keys=True, separators=(',', ':'))}"
        for t in tasks
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def started(index=1, difficulty="medium"):
    world = SqliteQuestions()
    world.reset(world.generate_task(index, seed=7, difficulty=difficulty, split="train"))
    return world


def test_rows_are_the_known_ones():
    assert build_tables(43057)["customers"].rows == [
        (1, "Bo1", "Riga"),
        (2, "Gus2", "Lyon"),
        (3, "Lou3", "Lyon"),
        (4, "Eli4", "Osaka"),
        (5, "Jem5", "Split"),
    ]
    tables = build_tables(43058)
    assert tables["orders"].rows[0] == (1, 2, 492, "shipped")
    text = json.dumps([tables["customers"].rows, tables["orders"].rows])
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "6519dc6be29ef34aa06310d750f59782495595e8300cb5f4df19f70de7252e6e"
    )


@pytest.mark.parametrize(("difficulty", "index", "answer", "kind", "db_seed", "sql"), TASKS)
def test_tasks_are_the_known_ones(difficulty, index, answer, kind, db_seed, sql):
    split = ("train", "eval", "test")[index // 1_000_000]
    task = SqliteQuestions().generate_task(index, seed=7, difficulty=difficulty, split=split)
    assert (task.task_id, task.answer) == (f"sql-{split}-{index}", answer)
    assert task.metadata == {"kind": kind, "db_seed": db_seed, "reference_sql": sql}


@pytest.mark.parametrize("case", DIGESTS)
def test_splits_are_the_known_ones(case):
    difficulty, *counts = case
    sizes = dict(zip(("train", "eval", "test"), counts, strict=True))
    splits = make_splits(SqliteQuestions(), sizes, 7, difficulty)
    assert {name: digest(splits[name]) for name in DIGESTS[case]} == DIGESTS[case]


@pytest.mark.parametrize(("arguments", "result", "category"), STEPS)
def test_queries_are_the_known_ones(arguments, result, category):
    step = started().step(ToolCall("query", arguments))
    assert (step.ok, step.result, step.failure_category) == (category is None, result, category)


def test_the_schema_names_every_column():
    step = started().step(ToolCall("schema", {}))
    assert step.state_id == "sql:1"
    assert step.result == (
        "customers(id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL)\n"
        "orders(id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, amount INTEGER NOT NULL, "
        "status TEXT NOT NULL)"
    )


@pytest.mark.parametrize(
    ("answer", "category", "predicted"),
    [
        ("707", "solved", "707"),
        ("707.0", "solved", "707.0"),
        ("0707", "solved", "0707"),
        ("707 ", "solved", "707"),
        ("seven", "wrong_answer", "seven"),
        ("1,707", "wrong_answer", "1,707"),
        ("707 dollars", "wrong_answer", "707 dollars"),
        ("707.00004", "wrong_answer", "707.00004"),
        ("nan", "malformed_answer", "nan"),
    ],
)
def test_verdicts_on_numbers_are_the_known_ones(answer, category, predicted):
    verdict = started().verify(answer)
    assert (verdict.failure_category, verdict.predicted) == (category, predicted)
    assert verdict.expected == "707"


@pytest.mark.parametrize(("answer", "reward"), [("lyon", 1.0), ('"LYON"', 1.0), ("Lyon.", 0.0)])
def test_texts_are_compared_in_any_case(answer, reward):
    assert started(0, "hard").verify(answer).reward == reward


@given(st.integers(0, 10**6), st.sampled_from(["easy", "medium", "hard"]))
def test_the_oracle_solves_every_task(index, difficulty):
    world = SqliteQuestions()
    task = world.generate_task(index, seed=3, difficulty=difficulty, split="train")
    world.reset(task)
    schema, query, final = world.oracle_actions(task)
    assert (schema, final) == (ToolCall("schema", {}), OracleFinal(task.answer))
    assert all(world.step(call).ok for call in (schema, query))
    assert world.verify(final.answer).reward == 1.0
    assert task.answer in world.privileged_context(task)


@given(st.text() | st.floats().map(str))
def test_the_verifier_is_total(answer):
    assert started().verify(answer).reward in (0.0, 1.0)
