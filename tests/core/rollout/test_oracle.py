import threading
from dataclasses import replace

import pytest

from core.environments.base import OracleFinal, ToolCall
from core.environments.calculator import Calculator
from core.errors import ToolEnvironmentError, TrajectoryError
from core.rollout.oracle import oracle_trajectory
from core.trajectory.trajectory import TerminationReason


def task_of(index: int, difficulty):
    return Calculator().generate_task(index, seed=7, difficulty=difficulty, split="train")


def test_the_easy_reference_task(codec):
    # Seed 7, index 0: 7 - 3.
    task = task_of(0, "easy")
    trace = oracle_trajectory(Calculator(prompt_style="compact"), task, codec)
    assert trace.trajectory_id == f"{task.task_id}:oracle"
    texts = [span.text for span in trace.spans[2:]]
    assert texts[0] == (
        '<tool_call>\n{"arguments": {"expression": "7 - 3"}, "name": "calculator"}\n</tool_call>'
    )
    assert '{"ok": true, "result": "4"}' in texts[1]
    assert texts[2] == "<final>\n4\n</final>"
    assert (trace.logprobs, trace.kept_mass, trace.model_digest) == ([], [], None)
    assert trace.metadata["source"] == "oracle"
    assert trace.counters.assistant_turns == 2


def test_the_chained_reference_task(codec):
    # Seed 7, hard, index 1: (1 + 3) km in miles.
    trace = oracle_trajectory(Calculator(), task_of(1, "hard"), codec)
    results = [result.result for turn in trace.turns for result in turn.tool_results]
    assert results == ["4", "2.4855"]
    assert trace.verification.predicted == "2.4855"
    assert trace.counters.parsed_tool_calls == trace.counters.tool_execution_successes == 2


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_the_oracle_solves_every_task_in_the_tokens_of_its_text(codec, difficulty):
    for index in range(25):
        trace = oracle_trajectory(Calculator(), task_of(index, difficulty), codec)
        assert trace.solved
        assert trace.termination_reason is TerminationReason.FINAL_ANSWER
        assert codec.decode(trace.token_ids) == "".join(span.text for span in trace.spans)


def test_a_trace_is_cut_after_its_turns(codec):
    trace = oracle_trajectory(Calculator(), task_of(1, "hard"), codec, max_turns=2)
    assert trace.termination_reason is TerminationReason.MAX_TURNS
    assert (len(trace.turns), trace.solved) == (2, False)


def test_an_oracle_without_an_answer_runs_out_of_turns(codec):
    class Silent(Calculator):
        def oracle_actions(self, task):
            return [ToolCall("calculator", {"expression": "1"})]

    trace = oracle_trajectory(Silent(), task_of(0, "easy"), codec)
    assert trace.termination_reason is TerminationReason.MAX_TURNS


def test_what_the_world_raises_is_raised(codec):
    class Broken(Calculator):
        def step(self, call):
            raise ToolEnvironmentError("the oven is cold", "Heat it.")

    with pytest.raises(ToolEnvironmentError, match="the oven is cold"):
        oracle_trajectory(Broken(), task_of(0, "easy"), codec)


def test_a_repeated_action_is_no_offence(codec):
    class Stubborn(Calculator):
        def oracle_actions(self, task):
            return [ToolCall("calculator", {"expression": "4"})] * 5 + [OracleFinal("4")]

    assert oracle_trajectory(Stubborn(), task_of(0, "easy"), codec).solved


@pytest.mark.parametrize("prompt", ["Compute 7 - 3.", "<|im_end|>"])
def test_a_slow_world_leaves_no_thread_behind(codec, prompt):
    class Unhurried(Calculator):
        name, slow = "unhurried", True

    task = replace(task_of(0, "easy"), prompt=prompt)
    try:
        assert oracle_trajectory(Unhurried(), task, codec).solved
    except TrajectoryError:
        assert prompt == "<|im_end|>"
    for thread in threading.enumerate():
        if thread.name == "world-unhurried":
            thread.join(5)
            assert not thread.is_alive()
