"""Golden rows: vectors.md 4 (convert and calculator steps) and 5 (verifiers)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.base import Observation, OracleFinal, Task, ToolCall
from core.environments.calculator import Calculator
from core.errors import ToolEnvironmentError

KM_TO_MI = {"from_unit": "km", "to_unit": "mi"}

STEPS = [
    ("convert", {"value": 5, **KM_TO_MI}, True, "3.1069", None),
    ("convert", {"value": 136, "from_unit": "m", "to_unit": "ft"}, True, "446.1942", None),
    ("convert", {"value": 100, "from_unit": "c", "to_unit": "f"}, True, "212", None),
    ("convert", {"value": "5", **KM_TO_MI}, True, "3.1069", None),
    ("convert", {"value": True, **KM_TO_MI}, False, "", "invalid_tool_call"),
    ("convert", {"value": 1e13, **KM_TO_MI}, False, "", "tool_error"),
    ("convert", {"value": 5, "from_unit": "KM", "to_unit": "mi"}, True, "3.1069", None),
    ("calculator", {"expression": "1/0"}, False, "", "tool_error"),
    ("calculator", {}, False, "", "invalid_tool_call"),
    ("calculator", {"expression": 5}, False, "", "invalid_tool_call"),
    ("nope", {}, False, "", "unknown_tool"),
    ("calculator", {"expression": "1+1", "x": 1}, True, "2", None),
]

# Verifier, kind of task, answer, category; the expected answer is 14 (meters).
VERDICTS = [
    ("v1", "arith", "14", "solved"),
    ("v1", "arith", "14.0", "solved"),
    ("v1", "arith", "1.4e1", "solved"),
    ("v1", "arith", "14 miles", "solved"),
    ("v1", "arith", "14 arbitrary text", "solved"),
    ("v1", "arith", "nan", "malformed_answer"),
    ("v1", "arith", "inf", "malformed_answer"),
    ("v1", "arith", "", "malformed_answer"),
    ("v1", "arith", "fourteen", "malformed_answer"),
    ("v1", "arith", "14.001", "solved"),
    ("v1", "arith", "14.0014", "wrong_answer"),
    ("v1", "arith", "1,4", "solved"),
    ("v1", "arith", "$14", "malformed_answer"),
    ("v1", "arith", "-14", "wrong_answer"),
    ("v1", "arith", "14 metres", "solved"),
    ("v1", "conv", "1.4e1", "solved"),
    ("v1", "conv", "14 meters", "solved"),
    ("v1", "conv", "14 m", "solved"),
    ("v1", "conv", "14 M", "solved"),
    ("v1", "conv", "14 miles", "solved"),
    ("v1", "conv", "14 arbitrary text", "solved"),
    ("v1", "conv", "nan", "malformed_answer"),
    ("v1", "conv", "inf", "malformed_answer"),
    ("v1", "conv", "", "malformed_answer"),
    ("v1", "conv", "fourteen", "malformed_answer"),
    ("v1", "conv", "14.001", "solved"),
    ("v1", "conv", "14.0015", "wrong_answer"),
    ("v1", "conv", "$14", "malformed_answer"),
    ("v1", "conv", "14.", "solved"),
    ("v1", "conv", "-14", "wrong_answer"),
    ("v1", "conv", "14 metres", "solved"),
    ("v2", "arith", "14.0", "solved"),
    ("v2", "arith", "1.4e1", "solved"),
    ("v2", "arith", "14 meters", "malformed_answer"),
    ("v2", "arith", "14 m", "malformed_answer"),
    ("v2", "arith", "14 miles", "malformed_answer"),
    ("v2", "arith", "nan", "malformed_answer"),
    ("v2", "arith", "inf", "malformed_answer"),
    ("v2", "arith", "", "malformed_answer"),
    ("v2", "arith", "fourteen", "malformed_answer"),
    ("v2", "arith", "14.001", "solved"),
    ("v2", "arith", "14.0014", "wrong_answer"),
    ("v2", "arith", "14.0015", "wrong_answer"),
    ("v2", "arith", "1,4", "malformed_answer"),
    ("v2", "arith", "$14", "malformed_answer"),
    ("v2", "arith", "14.", "solved"),
    ("v2", "conv", "14", "solved"),
    ("v2", "conv", "14.0", "solved"),
    ("v2", "conv", "1.4e1", "solved"),
    ("v2", "conv", "14 miles", "wrong_answer"),
    ("v2", "conv", "14 arbitrary text", "malformed_answer"),
    ("v2", "conv", "inf", "malformed_answer"),
    ("v2", "conv", "fourteen", "malformed_answer"),
    ("v2", "conv", "14.001", "solved"),
    ("v2", "conv", "14.0014", "wrong_answer"),
    ("v2", "conv", "14.0015", "wrong_answer"),
    ("v2", "conv", "1,4", "malformed_answer"),
    ("v2", "conv", "$14", "malformed_answer"),
    ("v2", "conv", "14.", "solved"),
    ("v2", "conv", "-14", "wrong_answer"),
    ("v2", "conv", "14 metres", "malformed_answer"),
]

FACTS = {
    "arith": {"kind": "arithmetic", "expression": "7 + 7"},
    "conv": {"kind": "conversion", "value": 14, "from_unit": "ft", "to_unit": "m"},
}


def started(version="v1", kind="arith"):
    environment = Calculator(verifier_version=version)
    environment.reset(Task("t", "p", "14", "easy", "train", FACTS[kind]))
    return environment


@pytest.mark.parametrize(("name", "arguments", "ok", "result", "category"), STEPS)
def test_steps_are_the_known_ones(name, arguments, ok, result, category):
    step = started().step(ToolCall(name, arguments))
    assert (step.ok, step.result, step.failure_category) == (ok, result, category)
    assert (step.error is None) is ok


@pytest.mark.parametrize(("version", "kind", "answer", "category"), VERDICTS)
def test_verdicts_are_the_known_ones(version, kind, answer, category):
    verdict = started(version, kind).verify(answer)
    assert (verdict.failure_category, verdict.predicted, verdict.expected) == (
        category,
        answer,
        "14",
    )
    assert (verdict.solved, verdict.reward) == (category == "solved", float(category == "solved"))


def test_every_step_changes_the_state_id_and_reset_rewinds_it():
    environment = started()
    states = [environment.step(ToolCall(name, {})).state_id for name in ("convert", "nope")]
    assert states == ["calc:1", "calc:2"]
    task = Task("t", "Compute 7 + 7.", "14", "easy", "train", FACTS["arith"])
    assert environment.reset(task) == Observation("Compute 7 + 7.", "calc:0")


def test_the_oracle_of_a_chained_task_computes_then_converts():
    environment = Calculator()
    task = environment.generate_task(1, seed=7, difficulty="hard", split="train")
    assert environment.oracle_actions(task) == [
        ToolCall("calculator", {"expression": "(1 + 3)"}),
        ToolCall("convert", {"value": 4.0, "from_unit": "km", "to_unit": "mi"}),
        OracleFinal("2.4855"),
    ]
    assert environment.privileged_context(task) == (
        "The expression is 4. The right answer is 2.4855."
    )


@given(st.integers(0, 2**31), st.sampled_from(["easy", "medium", "hard"]))
def test_the_oracle_solves_every_task_under_the_stricter_verifier(index, difficulty):
    environment = Calculator(verifier_version="v2")
    task = environment.generate_task(index, seed=3, difficulty=difficulty, split="train")
    environment.reset(task)
    *calls, final = environment.oracle_actions(task)
    results = [environment.step(call) for call in calls]
    assert all(result.ok for result in results)
    assert results[-1].result == final.answer == task.answer
    assert environment.verify(final.answer).reward == 1.0
    assert task.answer in environment.privileged_context(task)


@given(st.text(), st.sampled_from(["v1", "v2"]), st.sampled_from(["arith", "conv"]))
def test_verifiers_are_total(answer, version, kind):
    verdict = started(version, kind).verify(answer)
    assert verdict.reward in (0.0, 1.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["expression", "value", "from_unit", "to_unit", "x"]), JSON
)


@given(st.sampled_from(["calculator", "convert"]) | st.text(), ARGUMENTS)
def test_steps_are_total_and_short(name, arguments):
    step = started().step(ToolCall(name, arguments))
    assert step.ok == (step.error is None)
    assert len(step.result) + len(step.error or "") <= 400


def test_verifying_before_an_episode_is_refused():
    with pytest.raises(ToolEnvironmentError, match="no episode"):
        Calculator().verify("14")
