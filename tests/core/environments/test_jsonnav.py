"""Golden rows: vectors.md 2 and 3b (tasks), 5 (verifier and tools)."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.base import OracleFinal, ToolCall, make_splits
from core.environments.jsonnav import JsonNavigation

TASKS = [
    ("easy", 1, "epsilon-730", "direct", 55434, "config.epsilon.label", "epsilon"),
    ("easy", 2, "alpha-668", "direct", 55435, "config.alpha.label", "delta"),
    ("medium", 1, "97", "find", 55434, "config.epsilon.threshold", "epsilon"),
    ("medium", 2, "11", "find", 55435, "config.delta.threshold", "delta"),
    ("medium", 3, "13", "find", 55436, "config.gamma.threshold", "gamma"),
    ("medium", 1000000, "77", "find", 1055433, "config.gamma.threshold", "gamma"),
    ("hard", 0, "delta-782", "pointer", 55433, "config.delta.label", "delta"),
    ("hard", 1, "west", "pointer", 55434, "config.epsilon.region", "epsilon"),
    ("hard", 2, "delta-148", "pointer", 55435, "config.delta.label", "delta"),
    ("hard", 3, "gamma-325", "pointer", 55436, "config.gamma.label", "gamma"),
    ("hard", 1000000, "gamma-271", "pointer", 1055433, "config.gamma.label", "gamma"),
    ("hard", 2000000, "beta-487", "pointer", 2055433, "config.beta.label", "beta"),
]

DIGESTS = {
    ("medium", 13, 192, 32, 0): {
        "train": "d9d6f481e77a4a9b6be57b56fbb4f127398301c58b4835ec3b13d0bef613d912",
        "eval": "b1a2da180c994c82a4b528279ded8dceff08d099fd9d22b90ab55059fe1ea2ca",
    },
    ("easy", 7, 16, 8, 0): {
        "train": "58690d6d7cc9ffae240232f7ec94a0ba7ad4c2e27af72e3a66db5b4a0d53d4db",
        "eval": "9723b480049485e03c45229514eacebd0684f408098d04951c9f84e2f0599c69",
    },
    ("hard", 7, 16, 0, 8): {
        "train": "77e69a18955701c4f2b34207f288849a7b4a4348ee277bfa5897d5dde0ab720e",
        "test": "1b3404521a8e660ac33c4ca9fc4a9ad277056613b389b257d6ad0bd2c7d05f82",
    },
}

STEPS = [
    ("get", {"path": "meta.pointer"}, "delta", None),
    ("keys", {"path": "config"}, '["alpha", "beta", "delta"]', None),
    ("keys", {"path": ""}, '["config", "meta", "records"]', None),
    ("keys", {"path": "meta.pointer"}, None, "tool_error"),
    ("keys", {"path": "records"}, '["[0]", "[1]"]', None),
    (
        "find",
        {"key": "label"},
        '["config.delta.label", "config.alpha.label", "config.beta.label"]',
        None,
    ),
    ("find", {"key": "zzz"}, "[]", None),
    ("find", {}, None, "tool_error"),
    ("get", {"path": "nope"}, None, "tool_error"),
    ("get", {"path": 5}, None, "tool_error"),
    ("get", {"path": "meta.checked"}, "false", None),
    ("nope", {}, None, "unknown_tool"),
]


def digest(tasks):
    rows = (
        f"{t.task_id}\t{t.answer}\t{json.dumps(t.metadata, sort_keys=True, separators=(',', ':'))}"
        for t in tasks
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def started():
    world = JsonNavigation()
    world.reset(world.generate_task(0, seed=7, difficulty="hard", split="train"))
    return world


@pytest.mark.parametrize(
    ("difficulty", "index", "answer", "kind", "seed", "path", "pointer"), TASKS
)
def test_tasks_are_the_known_ones(difficulty, index, answer, kind, seed, path, pointer):
    split = ("train", "eval", "test")[index // 1_000_000]
    task = JsonNavigation().generate_task(index, seed=7, difficulty=difficulty, split=split)
    assert (task.task_id, task.answer) == (f"json-{split}-{index}", answer)
    assert task.metadata == {
        "kind": kind,
        "document_seed": seed,
        "path": path,
        "pointer": pointer,
    }


@pytest.mark.parametrize("case", DIGESTS)
def test_splits_are_the_known_ones(case):
    difficulty, seed, *counts = case
    sizes = dict(zip(("train", "eval", "test"), counts, strict=True))
    splits = make_splits(JsonNavigation(), sizes, seed, difficulty)
    assert {name: digest(splits[name]) for name in DIGESTS[case]} == DIGESTS[case]


@pytest.mark.parametrize(("name", "arguments", "result", "category"), STEPS)
def test_steps_are_the_known_ones(name, arguments, result, category):
    step = started().step(ToolCall(name, arguments))
    assert (step.ok, step.failure_category) == (category is None, category)
    assert step.result == (result or "")


def test_get_without_a_path_is_the_whole_document():
    world = started()
    whole = world.step(ToolCall("get", {}))
    assert whole.result.startswith('{"config": {"alpha": {"capacity": 156, "label": "alpha-908"')
    assert json.loads(whole.result)["meta"] == {"checked": False, "pointer": "delta", "version": 7}


@pytest.mark.parametrize(
    ("answer", "category", "predicted"),
    [
        ("delta-782", "solved", "delta-782"),
        (" delta-782 ", "solved", "delta-782"),
        ('"delta-782"', "solved", "delta-782"),
        ("'delta-782'", "wrong_answer", "'delta-782'"),
        ("DELTA-782", "wrong_answer", "DELTA-782"),
        ("", "wrong_answer", ""),
    ],
)
def test_verdicts_are_the_known_ones(answer, category, predicted):
    verdict = started().verify(answer)
    assert (verdict.failure_category, verdict.predicted) == (category, predicted)
    assert verdict.expected == "delta-782"


@pytest.mark.parametrize(
    ("difficulty", "names"),
    [("easy", ["get"]), ("medium", ["find", "get"]), ("hard", ["get", "get"])],
)
def test_the_oracle_looks_for_the_path_then_reads_it(difficulty, names):
    world = JsonNavigation()
    task = world.generate_task(4, seed=7, difficulty=difficulty, split="train")
    *calls, final = world.oracle_actions(task)
    assert [call.name for call in calls] == names
    assert final == OracleFinal(task.answer)


@given(st.integers(0, 10**6), st.sampled_from(["easy", "medium", "hard"]))
def test_the_oracle_solves_every_task(index, difficulty):
    world = JsonNavigation()
    task = world.generate_task(index, seed=3, difficulty=difficulty, split="train")
    world.reset(task)
    *calls, final = world.oracle_actions(task)
    results = [world.step(call) for call in calls]
    assert all(result.ok for result in results)
    assert results[-1].result == final.answer
    assert world.verify(final.answer).reward == 1.0
    assert task.answer in world.privileged_context(task)


@given(st.text())
def test_the_verifier_is_total(answer):
    assert started().verify(answer).reward in (0.0, 1.0)


@given(
    st.sampled_from(["get", "keys", "find"]),
    st.dictionaries(st.sampled_from(["path", "key", "x"]), st.text() | st.integers() | st.none()),
)
def test_steps_are_total_and_short(name, arguments):
    step = started().step(ToolCall(name, arguments))
    assert step.ok == (step.error is None)
    assert len(step.result) + len(step.error or "") <= 1200
