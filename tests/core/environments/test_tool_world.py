"""What all worlds with tools share; the calculator stands for them."""

import pytest

from core.environments.base import Observation, Task, ToolCall
from core.environments.calculator import Calculator
from core.environments.registry import make_environment
from core.environments.tool_world import describe, text_argument
from core.errors import InvalidToolCallError, ToolEnvironmentError

TASK = Task("t", "Compute 7 + 7.", "14", "easy", "train", {"kind": "arithmetic"})


def test_every_call_makes_a_new_state_and_reset_rewinds():
    world = Calculator()
    assert world.reset(TASK) == Observation("Compute 7 + 7.", "calc:0")
    states = [world.step(ToolCall(name, {})).state_id for name in ("convert", "nope", "calculator")]
    assert states == ["calc:1", "calc:2", "calc:3"]
    assert world.reset(TASK).state_id == "calc:0"


def test_refusals_are_typed_results():
    world = Calculator()
    world.reset(TASK)
    cases = {
        "unknown_tool": ToolCall("nope", {}),
        "invalid_tool_call": ToolCall("calculator", {"expression": 5}),
        "tool_error": ToolCall("calculator", {"expression": "1/0"}),
    }
    for category, call in cases.items():
        result = world.step(call)
        assert (result.ok, result.result, result.failure_category) == (False, "", category)
    assert world.step(ToolCall("x" * 999, {})).error == (
        f"there is no tool {'x' * 40!r}; the tools are calculator, convert"
    )


def test_a_verdict_pays_one_or_nothing():
    world = Calculator()
    world.reset(TASK)
    right, wrong = world.verify(" 14 "), world.verify("15")
    assert (right.solved, right.reward, right.predicted, right.expected) == (True, 1.0, "14", "14")
    assert (wrong.solved, wrong.reward, wrong.failure_category) == (False, 0.0, "wrong_answer")


def test_a_refusal_reads_as_one_line():
    assert describe(ToolEnvironmentError("no", "Try again.")) == "no. Try again."


@pytest.mark.parametrize(
    "name", ["calculator", "jsonnav", "sqlite", "sqlite_recovery", "tool_policy"]
)
def test_an_unknown_argument_is_refused_under_v3_only(name):
    for version, code in (("v1", None), ("v2", None), ("v3", "UNKNOWN_ARGUMENT")):
        world = make_environment(name, protocol_version=version)
        task = world.generate_task(5, seed=0, difficulty="hard", split="train")
        world.reset(task)
        call = next(a for a in world.oracle_actions(task) if isinstance(a, ToolCall))
        result = world.step(ToolCall(call.name, {**call.arguments, "because": "x"}))
        assert (result.error_code == "UNKNOWN_ARGUMENT") is (version == "v3")
        assert (result.failure_category == "invalid_tool_call") is (code is not None)


def test_the_oracle_solves_its_task_under_the_strict_protocol_too():
    world = make_environment("tool_policy", protocol_version="v3")
    task = world.generate_task(5, seed=17, difficulty="easy", split="train")
    world.reset(task)
    *calls, final = world.oracle_actions(task)
    assert all(world.step(call).ok for call in calls)
    assert world.verify(final.answer).solved
    world.reset(task)
    world.step(ToolCall("sandbox_action", {"action": "read", "why": "x"}))
    world.step(calls[0])
    # A call that the protocol refuses is a forbidden call.
    assert not world.verify(final.answer).solved


@pytest.mark.parametrize("value", [None, 5, True, ["x"]])
def test_an_argument_that_is_no_text_is_refused(value):
    with pytest.raises(InvalidToolCallError, match="'x' must be a string"):
        text_argument({"x": value}, "x")


def test_nothing_is_judged_before_an_episode():
    with pytest.raises(ToolEnvironmentError, match="no episode"):
        Calculator().verify("14")
