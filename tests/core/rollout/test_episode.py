import pytest

from core.environments.base import FailureCategory, StepResult, Task
from core.environments.calculator import Calculator
from core.environments.protocol import render_final, render_tool_call
from core.errors import ToolEnvironmentError
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episode import Episode
from core.rollout.limits import EpisodeLimits
from core.rollout.turns import GeneratedTurn
from core.trajectory.trajectory import Counters, TerminationReason, Trajectory

CODEC = ToyTokenizer()
TASK = Task("t0", "Compute 7 - 3.", "4", "easy", "train", {"kind": "arithmetic"})
LIMITS = EpisodeLimits(4, 40, 2048, max_parse_errors=2, max_repeated_calls=2)
COUNTERS = list(Counters.model_fields)


def call(expression: str = "7 - 3") -> str:
    return render_tool_call("calculator", {"expression": expression})


def play(*texts: str, limits: EpisodeLimits = LIMITS, environment=None) -> Trajectory:
    """Say the texts one after the other; a text that ends in ``|`` ends with an end of turn."""
    episode = Episode(environment or Calculator(), TASK, CODEC, limits)
    episode.begin()
    for text in texts:
        assert episode.reason is None
        closed = text.endswith("|")
        token_ids = CODEC.encode(text.removesuffix("|")) + ([2] if closed else [])
        logprobs = [-0.5] * len(token_ids)
        episode.take(GeneratedTurn(0, token_ids, logprobs, None, "eos" if closed else "stop"))
    assert episode.reason is not None
    return episode.build({"source": "policy"}, trajectory_id="e0", policy_version=3)


def counted(trajectory: Trajectory) -> dict[str, int]:
    return {name: n for name in COUNTERS if (n := getattr(trajectory.counters, name))}


def last_text(trajectory: Trajectory) -> str:
    return trajectory.spans[-1].text


def test_a_call_and_an_answer():
    trajectory = play(call(), render_final("4"))
    assert trajectory.termination_reason is TerminationReason.FINAL_ANSWER
    assert counted(trajectory) == {
        "assistant_turns": 2,
        "emitted_tool_calls": 1,
        "parsed_tool_calls": 1,
        "tool_execution_successes": 1,
        "final_answers_emitted": 1,
        "final_answers_format_valid": 1,
        "final_answers_verified": 1,
    }
    assert [(s.segment_key, s.turn_id) for s in trajectory.spans] == [
        ("sys", None),
        ("user", None),
        ("gen:0:block", 0),
        ("obs:0", 0),
        ("gen:1:block", 1),
    ]
    first, second = trajectory.turns
    assert len(first.tool_calls) == 1
    assert len(first.tool_results) == 1
    assert (first.tool_calls[0].call_id, first.tool_calls[0].name) == ("c0", "calculator")
    assert first.tool_calls[0].arguments == {"expression": "7 - 3"}
    assert (first.tool_results[0].ok, first.tool_results[0].result) == (True, "4")
    assert first.tool_results[0].env_state_id == trajectory.spans[3].env_state_id == "calc:1"
    assert (second.is_final, second.tool_calls) == (True, [])
    assert (trajectory.solved, trajectory.verification.reward) == (True, 1.0)
    assert len(trajectory.logprobs) == sum(trajectory.model_mask)
    assert trajectory.metadata == {
        "source": "policy",
        "difficulty": "easy",
        "split": "train",
        "initial_observation_state_id": "calc:0",
        "kind": "arithmetic",
    }


def test_prose_before_a_block_is_its_own_span():
    trajectory = play("so " + render_final("4"))
    assert [s.segment_key for s in trajectory.spans[2:]] == ["gen:0:text", "gen:0:block"]
    assert trajectory.solved


def test_a_wrong_and_a_malformed_answer_both_end_the_episode():
    wrong, malformed = play(render_final("5")), play(render_final("four"))
    for trajectory in (wrong, malformed):
        assert trajectory.termination_reason is TerminationReason.FINAL_ANSWER
        assert not trajectory.solved
        assert trajectory.counters.final_answers_verified == 1
    assert wrong.counters.final_answers_format_valid == 1
    assert malformed.counters.final_answers_format_valid == 0


@pytest.mark.parametrize(("most", "turns"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_unreadable_turns_end_the_episode_at_their_limit(most: int, turns: int):
    limits = EpisodeLimits(9, 40, 2048, max_parse_errors=most)
    trajectory = play(*["nonsense"] * turns, limits=limits)
    assert trajectory.termination_reason is TerminationReason.PARSE_ERROR_LIMIT
    assert counted(trajectory) == {
        "assistant_turns": turns,
        "parse_errors": turns,
        "invalid_tool_calls": turns,
    }
    (record,) = trajectory.turns[-1].tool_calls
    assert (record.name, record.valid, record.call_id) == ("<unparsed>", False, f"c{turns - 1}")
    # The last one is not answered; the ones before are.
    assert last_text(trajectory) == "nonsense"
    assert sum(s.segment_key.startswith("obs") for s in trajectory.spans) == turns - 1


def test_the_model_reads_why_its_turn_was_not_read():
    trajectory = play("nonsense", render_final("4"))
    observation = trajectory.spans[3]
    assert observation.segment_key == "obs:0"
    assert '"ok": false' in observation.text
    error = str(trajectory.turns[0].tool_calls[0].parse_error)
    assert error.split("<", maxsplit=1)[0] in observation.text
    assert trajectory.solved


def test_tags_that_cannot_be_read_count_as_emitted():
    trajectory = play("<tool_call>{}</tool_call>", "<final>4")
    assert counted(trajectory) == {
        "assistant_turns": 2,
        "emitted_tool_calls": 1,
        "final_answers_emitted": 1,
        "parse_errors": 2,
        "invalid_tool_calls": 2,
    }


@pytest.mark.parametrize("text", ["|", "I think it is 4|", "<final>4|"])
def test_closing_a_turn_without_an_answer_ends_the_episode(text: str):
    trajectory = play(text, limits=EpisodeLimits(4, 40, 2048, max_parse_errors=9))
    assert trajectory.termination_reason is TerminationReason.EOS_WITHOUT_FINAL
    assert trajectory.token_ids[-1] == 2
    assert trajectory.model_mask[-1]
    assert trajectory.verification.failure_category == "no_final_answer"
    assert (trajectory.verification.predicted, trajectory.verification.expected) == (None, "4")


def test_an_identical_call_is_executed_so_often_and_no_more():
    # Reference vector: limit 1, always the same call.
    trajectory = play(call(), call(), limits=EpisodeLimits(4, 40, 2048, max_repeated_calls=1))
    assert trajectory.termination_reason is TerminationReason.REPEATED_CALL_LIMIT
    assert counted(trajectory) == {
        "assistant_turns": 2,
        "emitted_tool_calls": 2,
        "parsed_tool_calls": 2,
        "tool_execution_successes": 1,
        "repeated_call_terminations": 1,
    }
    assert len(trajectory.turns[-1].tool_results) == 1
    assert not trajectory.turns[-1].tool_results[0].ok
    assert "more than 1 times" in last_text(trajectory)


def test_calls_are_identical_whatever_the_order_of_their_arguments():
    one = '{"name":"convert","arguments":{"value":1,"from_unit":"km","to_unit":"mi"}}'
    two = '{"arguments":{"to_unit":"mi","from_unit":"km","value":1},"name":"convert"}'
    texts = [f"<tool_call>{text}</tool_call>" for text in (one, two)]
    trajectory = play(*texts, limits=EpisodeLimits(4, 40, 2048, max_repeated_calls=1))
    assert trajectory.termination_reason is TerminationReason.REPEATED_CALL_LIMIT


def test_turns_run_out_after_the_last_observation():
    trajectory = play(call("1"), call("2"), limits=EpisodeLimits(2, 40, 2048))
    assert trajectory.termination_reason is TerminationReason.MAX_TURNS
    assert trajectory.spans[-1].segment_key == "obs:1"
    assert trajectory.counters.tool_execution_successes == 2
    assert trajectory.verification.failure_category == "no_final_answer"


def test_unreadable_turns_use_up_turns_too():
    trajectory = play("x", limits=EpisodeLimits(1, 40, 2048))
    assert trajectory.termination_reason is TerminationReason.MAX_TURNS
    assert trajectory.spans[-1].segment_key == "obs:0"


def test_tokens_run_out_in_an_observation():
    prompt = len(Episode(Calculator(), TASK, CODEC, LIMITS).begin())
    total = prompt + len(CODEC.encode(call())) + 3
    trajectory = play(call(), limits=EpisodeLimits(4, 40, total))
    assert trajectory.termination_reason is TerminationReason.MAX_TOKENS
    assert len(trajectory.token_ids) > total


def test_a_prompt_that_fills_the_limit_ends_its_episode():
    trajectory = play(limits=EpisodeLimits(4, 40, 16))
    assert trajectory.termination_reason is TerminationReason.MAX_TOKENS
    assert (trajectory.turns, trajectory.logprobs, counted(trajectory)) == ([], [], {})


def test_the_budget_is_the_smaller_of_turn_and_remaining_tokens():
    prompt = len(Episode(Calculator(), TASK, CODEC, LIMITS).begin())
    for total, budget in [(prompt + 100, 40), (prompt + 40, 40), (prompt + 7, 7), (prompt, 0)]:
        episode = Episode(Calculator(), TASK, CODEC, EpisodeLimits(4, 40, total))
        episode.begin()
        assert episode.budget == budget
        assert (episode.reason is None) == (budget > 0)


def test_refused_calls_are_counted_by_kind():
    unknown = render_tool_call("oven", {})
    broken = call("7 / 0")
    trajectory = play(unknown, broken, render_final("4"))
    assert counted(trajectory) == {
        "assistant_turns": 3,
        "emitted_tool_calls": 2,
        "parsed_tool_calls": 2,
        "invalid_tool_calls": 2,
        "tool_execution_errors": 2,
        "unknown_tool_calls": 1,
        "final_answers_emitted": 1,
        "final_answers_format_valid": 1,
        "final_answers_verified": 1,
    }


DEFECTS = [
    (ToolEnvironmentError("the oven is cold", "Heat it."), "the oven is cold"),
    (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
]


@pytest.mark.parametrize(("error", "message"), DEFECTS)
def test_a_tool_that_raises_ends_its_episode_with_an_observation(faulty, error, message):
    trajectory = play(call(), environment=faulty("step", error))
    assert trajectory.termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert trajectory.metadata["environment_error"] == message
    assert message in last_text(trajectory)
    assert counted(trajectory) == {
        "assistant_turns": 1,
        "emitted_tool_calls": 1,
        "parsed_tool_calls": 1,
        "tool_execution_errors": 1,
    }
    assert len(trajectory.turns[0].tool_results) == 1
    assert not trajectory.turns[0].tool_results[0].ok


@pytest.mark.parametrize(("error", "message"), DEFECTS)
def test_a_verifier_that_raises_leaves_the_answer_unjudged(faulty, error, message):
    trajectory = play(render_final("4"), environment=faulty("verify", error))
    assert trajectory.termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert trajectory.metadata["environment_error"] == message
    assert (trajectory.solved, trajectory.verification.predicted) == (False, "4")
    assert trajectory.verification.failure_category == "tool_error"
    assert counted(trajectory) == {"assistant_turns": 1, "final_answers_emitted": 1}
    assert trajectory.turns[0].is_final


@pytest.mark.parametrize(("error", "message"), DEFECTS)
def test_a_world_that_does_not_start_gives_an_episode_without_turns(faulty, error, message):
    trajectory = play(environment=faulty("reset", error))
    assert trajectory.termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert trajectory.metadata["environment_error"] == message
    assert TASK.prompt in last_text(trajectory)


def test_defects_are_raised_where_they_must_not_pass_for_data(faulty):
    episode = Episode(faulty("reset", ValueError("no")), TASK, CODEC, LIMITS, raise_defects=True)
    with pytest.raises(ValueError, match="no"):
        episode.begin()


def test_facts_of_a_result_reach_record_and_model():
    class Strange(Calculator):
        def step(self, call):
            return StepResult(
                ok=False,
                state_id="s9",
                error="schema changed",
                failure_category=FailureCategory.TOOL_ERROR,
                error_code="SCHEMA_REFRESH_REQUIRED",
                retryable=True,
                intervention=True,
                metadata={"occurrence": 1},
            )

    trajectory = play(call(), render_final("9"), environment=Strange())
    (result,) = trajectory.turns[0].tool_results
    assert (result.error_code, result.retryable, result.intervention, result.metadata) == (
        "SCHEMA_REFRESH_REQUIRED",
        True,
        True,
        {"occurrence": 1},
    )
    assert '"code": "SCHEMA_REFRESH_REQUIRED"' in trajectory.spans[3].text
    assert '"occurrence": 1' in trajectory.spans[3].text
