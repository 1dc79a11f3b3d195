"""The calls of one turn: in order, answered together, and slow or broken ones among them."""

import json
import re
import sys
import threading
from dataclasses import replace

import pytest

from core.environments.base import StepResult, Task, ToolLimits
from core.environments.calculator import Calculator
from core.environments.protocol import render_final, render_tool_call
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episode import Episode
from core.rollout.limits import EpisodeLimits
from core.rollout.turns import GeneratedTurn
from core.trajectory.trajectory import Counters, TerminationReason, Trajectory

CODEC = ToyTokenizer()
TASK = Task("t0", "Compute 7 - 3.", "4", "easy", "train", {"kind": "arithmetic"})
LIMITS = EpisodeLimits(4, 80, 2048, max_parse_errors=2, max_repeated_calls=2)


def call(expression: str = "7 - 3") -> str:
    return render_tool_call("calculator", {"expression": expression})


def play(*texts: str, environment, limits: EpisodeLimits = LIMITS) -> Trajectory:
    """Say the texts one after the other; a text that ends in ``|`` ends with an end of turn."""
    episode = Episode(environment, TASK, CODEC, limits)
    episode.begin()
    for text in texts:
        assert episode.reason is None
        end = [2] if text.endswith("|") else []
        stop = "eos" if end else "stop"
        token_ids = CODEC.encode(text.removesuffix("|")) + end
        episode.take(GeneratedTurn(0, token_ids, [-0.5] * len(token_ids), None, stop))
    assert episode.reason is not None
    return episode.build({"source": "policy"}, trajectory_id="e0", policy_version=3)


def counted(trajectory: Trajectory) -> dict[str, int]:
    names = list(Counters.model_fields)
    return {name: n for name in names if (n := getattr(trajectory.counters, name))}


SEVERAL = {"protocol_version": "v3", "max_calls_per_turn": 3}


def test_calls_of_one_turn_run_in_order_and_are_answered_together():
    text = "so " + call("7 - 3") + "\n" + call("1 / 0") + call("2")
    trajectory = play(text + "|", render_final("4") + "|", environment=Calculator(**SEVERAL))
    keys = ["gen:0:text", "gen:0:block", "gen:0:block:1", "gen:0:block:2", "obs:0", "gen:1:block"]
    assert [span.segment_key for span in trajectory.spans[2:]] == keys
    # Every block is model text and critical, what lies between included; results never are.
    assert [span.is_critical for span in trajectory.spans[2:]] == [False, *[True] * 3, False, True]
    assert trajectory.spans[3].text == call("7 - 3") + "\n"
    first = trajectory.turns[0]
    assert [one.call_id for one in first.tool_calls] == ["c0.0", "c0.1", "c0.2"]
    assert [(one.call_id, one.ok) for one in first.tool_results] == [
        ("c0.0", True), ("c0.1", False), ("c0.2", True)
    ]  # fmt: skip
    assert [one.env_state_id for one in first.tool_results] == ["calc:1", "calc:2", "calc:3"]
    blocks = re.findall(r"<tool_result>\n(.*)\n</tool_result>", trajectory.spans[6].text)
    assert [json.loads(block)["id"] for block in blocks] == ["c0.0", "c0.1", "c0.2"]
    assert trajectory.spans[6].text.count("user\n") == 1
    assert counted(trajectory) == {
        "assistant_turns": 2,
        "emitted_tool_calls": 3,
        "parsed_tool_calls": 3,
        "invalid_tool_calls": 1,
        "tool_execution_successes": 2,
        "tool_execution_errors": 1,
        "final_answers_emitted": 1,
        "final_answers_format_valid": 1,
        "final_answers_verified": 1,
    }
    assert trajectory.solved


def test_a_call_that_ends_the_episode_keeps_later_ones_from_running():
    limits = EpisodeLimits(4, 40, 2048, max_repeated_calls=1)
    text = call("1") + call("1") + call("2")
    trajectory = play(text, limits=limits, environment=Calculator(**SEVERAL))
    assert trajectory.termination_reason is TerminationReason.REPEATED_CALL_LIMIT
    assert [one.error_code for one in trajectory.turns[0].tool_results] == [None, None, "NOT_RUN"]
    assert counted(trajectory) == {
        "assistant_turns": 1,
        "emitted_tool_calls": 3,
        "parsed_tool_calls": 3,
        "tool_execution_successes": 1,
        "repeated_call_terminations": 1,
    }


def test_a_turn_with_one_bad_call_runs_none_and_is_one_parse_error():
    text = call("1") + "<tool_call>{}</tool_call>|"
    trajectory = play(text, render_final("4"), environment=Calculator(**SEVERAL))
    assert trajectory.turns[0].tool_results == []
    assert (trajectory.counters.parse_errors, trajectory.counters.emitted_tool_calls) == (1, 2)
    assert trajectory.counters.tool_execution_successes == 0
    assert '"code": "UNREADABLE_CALL"' in trajectory.spans[3].text
    assert trajectory.solved


def test_a_blank_name_is_a_coded_refusal_under_v3_and_an_unknown_tool_before():
    blank = render_tool_call(" ", {})
    old = play(blank, render_final("4"), environment=Calculator())
    new = play(blank, render_final("4"), environment=Calculator(protocol_version="v3"))
    assert (old.counters.unknown_tool_calls, old.counters.parse_errors) == (1, 0)
    assert (new.counters.unknown_tool_calls, new.counters.parse_errors) == (0, 1)
    assert '"code": "BLANK_TOOL_NAME"' in new.spans[3].text


class Troubled(Calculator):
    """A calculator that does what its expression says: hang, flood, raise or return rubbish."""

    slow = True

    def tool_limits(self, tool):
        stateless = tool == "convert"
        return ToolLimits(seconds=0.05, characters=200, touches_state=not stateless)

    def step(self, call):
        word = str(call.arguments.get("expression", call.arguments.get("value")))
        if word == "hang":
            threading.Event().wait(20)
        if word == "raise":
            raise RuntimeError("the oven is cold")
        if word == "exit":
            sys.exit(3)
        if word == "rubbish":
            return None
        if word == "flood":
            return StepResult(True, "calc:1", "x" * 10**6)
        return super().step(call)


@pytest.mark.parametrize(
    ("word", "code", "reason"),
    [
        ("raise", "TOOL_ERROR", "RuntimeError: the oven is cold"),
        ("exit", "TOOL_ERROR", "SystemExit: 3"),
        ("rubbish", "TOOL_ERROR", "TypeError: a step returned NoneType, not StepResult"),
        ("hang", "TOOL_TIMEOUT", "the environment gave no result within 0.05 s"),
    ],
)
def test_a_tool_that_breaks_ends_its_episode_with_a_coded_observation(word, code, reason):
    trajectory = play(call(word), environment=Troubled())
    assert trajectory.termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert trajectory.metadata["environment_error"] == reason
    (result,) = trajectory.turns[0].tool_results
    assert (result.ok, result.error_code) == (False, code)
    assert f'"code": "{code}"' in trajectory.spans[-1].text
    assert trajectory.counters.tool_execution_errors == 1


def test_a_tool_that_floods_is_cut_and_the_episode_goes_on():
    trajectory = play(call("flood"), render_final("4"), environment=Troubled())
    (result,) = trajectory.turns[0].tool_results
    assert (result.ok, result.error_code, len(result.result)) == (True, "OUTPUT_TRUNCATED", 200)
    assert '"code": "OUTPUT_TRUNCATED"' in trajectory.spans[3].text
    assert trajectory.solved


def test_a_late_tool_that_touches_no_state_lets_the_episode_go_on():
    late = render_tool_call("convert", {"value": "hang"})
    trajectory = play(late, call(), render_final("4"), environment=Troubled())
    codes = [one.error_code for turn in trajectory.turns for one in turn.tool_results]
    assert codes == ["TOOL_TIMEOUT", None]
    assert trajectory.solved


def test_calls_after_one_that_broke_the_world_are_not_run():
    world = Troubled(protocol_version="v3", max_calls_per_turn=3)
    trajectory = play(call("1") + call("hang") + call("2") + "|", environment=world)
    codes = [one.error_code for one in trajectory.turns[0].tool_results]
    assert codes == [None, "TOOL_TIMEOUT", "NOT_RUN"]
    assert trajectory.counters.tool_execution_successes == 1


class Odd(Calculator):
    """Does what no conformance check has seen."""

    def tool_limits(self, tool):
        return {name: ToolLimits() for name in ("reset", "verify", "calculator")}[tool]

    def step(self, call):
        return StepResult(True, "s", "4", error_code="\udcff", metadata={"\udcff": ["\udcff"]})

    def verify(self, answer):
        verdict = super().verify(answer)
        if answer == "liar":
            return replace(verdict, solved=True)
        return replace(verdict, predicted="\udcff", detail="\udcff")


def test_limits_that_raise_end_one_episode_alone():
    trajectory = play(render_tool_call("serach", {}), environment=Odd())
    assert trajectory.termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert trajectory.metadata["environment_error"] == "KeyError: 'serach'"
    assert trajectory.turns[0].tool_results[0].error_code == "TOOL_ERROR"


def test_a_verdict_that_contradicts_itself_ends_one_episode_alone():
    trajectory = play(render_final("liar"), environment=Odd())
    assert trajectory.termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert "solved=True and" in trajectory.metadata["environment_error"]
    assert not trajectory.solved


def test_what_no_file_can_hold_is_written_out():
    trajectory = play(call(), render_final("4"), environment=Odd())
    (result,) = trajectory.turns[0].tool_results
    assert (result.error_code, result.metadata) == ("\\udcff", {"\\udcff": ["\\udcff"]})
    assert (trajectory.verification.predicted, trajectory.verification.detail) == ("\\udcff",) * 2
    assert trajectory.model_dump_json().encode()
