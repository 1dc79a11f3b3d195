"""What a trajectory promises, and each disagreement that it refuses."""

import pytest
from pydantic import ValidationError

from core.trajectory.spans import Span
from core.trajectory.trajectory import Trajectory


def span(span_type, start, end, segment_key, turn_id=None):
    facts = {"span_type": span_type, "start": start, "end": end, "segment_key": segment_key}
    return {**facts, "turn_id": turn_id}


SPANS = [
    span("system", 0, 2, "sys"),
    span("user", 2, 4, "user"),
    span("assistant_text", 4, 5, "gen:0:text", 0),
    span("assistant_tool_call", 5, 7, "gen:0:block", 0),
    span("tool_result", 7, 10, "obs:0", 0),
    span("assistant_final", 10, 12, "gen:1:block", 1),
]


def fields(**changes):
    return {
        "trajectory_id": "calc-train-0:v3:s7",
        "task_id": "calc-train-0",
        "environment": "calculator",
        "token_ids": list(range(20, 32)),
        "spans": SPANS,
        "turns": [{"turn_id": 0}, {"turn_id": 1, "is_final": True}],
        "logprobs": [-0.5, -1.0, -0.25, -2.0, 0.0],
        "tokenizer_digest": "d",
        "verification": {"solved": True, "reward": 1.0, "failure_category": "solved"},
        "termination_reason": "final_answer",
        **changes,
    }


def edited(index, **changes):
    return [span | (changes if at == index else {}) for at, span in enumerate(SPANS)]


def test_masks_and_targets_follow_from_the_spans():
    trajectory = Trajectory(**fields())
    assert trajectory.model_mask == [False] * 4 + [True] * 3 + [False] * 3 + [True] * 2
    assert trajectory.critical_mask == [False] * 5 + [True] * 2 + [False] * 3 + [True] * 2
    assert trajectory.target_positions() == [4, 5, 6, 10, 11]
    assert [kind.value for kind in trajectory.span_types[3:6]] == [
        "user",
        "assistant_text",
        "assistant_tool_call",
    ]
    assert trajectory.solved is True


def test_nothing_predicts_position_zero():
    spans = [{"span_type": "assistant_text", "start": 0, "end": 3, "segment_key": "gen:0:text"}]
    trajectory = Trajectory(**fields(token_ids=[5, 6, 7], spans=spans, turns=[], logprobs=[]))
    assert trajectory.target_positions() == [1, 2]


def test_oracle_traces_have_no_logprobs():
    assert Trajectory(**fields(logprobs=[])).logprobs == []


REFUSALS = [
    ("empty", {"token_ids": [], "spans": []}, "token_ids is empty"),
    ("gap", {"spans": edited(2, start=5)}, r"spans\[2\] is \[5, 5\) but must start at 4"),
    ("overlap", {"spans": edited(1, start=1)}, r"spans\[1\] is \[1, 4\) but must start at 2"),
    ("empty span", {"spans": edited(0, end=0)}, r"spans\[0\] is \[0, 0\)"),
    ("short", {"spans": SPANS[:-1]}, "spans end at 10 but there are 12 tokens"),
    ("long", {"token_ids": [1] * 11}, "spans end at 12 but there are 11 tokens"),
    ("unknown turn", {"turns": [{"turn_id": 0}]}, r"spans\[5\].turn_id 1 is not a turn"),
    ("turn twice", {"turns": [{"turn_id": 0}] * 2}, "repeat a turn_id"),
    ("key twice", {"spans": edited(1, segment_key="sys")}, "repeat a segment_key"),
    (
        "a tool's output made trainable",
        {"spans": edited(4, span_type="assistant_text"), "logprobs": []},
        r"spans\[4\].segment_key is 'obs:0' but the span is assistant_text",
    ),
    ("another turn", {"spans": edited(4, turn_id=1)}, r"spans\[4\].segment_key is 'obs:0'"),
    ("missing logprob", {"logprobs": [-1.0] * 4}, "logprobs has 4 entries for 5 model tokens"),
    ("extra mass", {"kept_mass": [1.0] * 12}, "kept_mass has 12 entries for 5 model tokens"),
    ("positive logprob", {"logprobs": [0.01] * 5}, "logprobs has a positive entry"),
    ("no mass", {"kept_mass": [0.0] * 5}, "kept_mass has an entry outside"),
    ("mass over 1", {"kept_mass": [1.5] * 5}, "kept_mass has an entry outside"),
    ("infinite logprob", {"logprobs": [float("-inf")] * 5}, "finite"),
    ("NaN logprob", {"logprobs": [float("nan")] * 5}, "finite"),
    ("negative id", {"token_ids": [-1] * 12}, "greater than or equal to 0"),
    (
        "answer in a turn that is none",
        {"turns": [{"turn_id": 0}, {"turn_id": 1}]},
        r"spans\[5\] is an answer, but turn 1 is none",
    ),
    (
        "answer of no turn",
        {"turns": [{"turn_id": 0}], "spans": SPANS[:5], "token_ids": [1] * 10, "logprobs": []},
        "final_answer, but no turn is final",
    ),
    (
        "call of another turn",
        {
            "spans": edited(4, tool_call_id="c9"),
            "turns": [
                {"turn_id": 0, "tool_calls": [{"call_id": "c0", "name": "a"}]},
                {"turn_id": 1, "is_final": True},
            ],
        },
        r"spans\[4\].tool_call_id is 'c9'",
    ),
    ("miscounted turns", {"counters": {"assistant_turns": 3}}, "assistant_turns is 3"),
    (
        "miscounted calls",
        {"counters": {"assistant_turns": 2, "parsed_tool_calls": 1}},
        "parsed_tool_calls is 1, but the turns have 0",
    ),
    ("negative count", {"counters": {"parse_errors": -1}}, "greater than or equal to 0"),
    ("negative version", {"policy_version": -1}, "greater than or equal to 0"),
    ("stored mask", {"model_generated_mask": [1] * 12}, "Extra inputs"),
    ("unknown reason", {"termination_reason": "bored"}, "termination_reason"),
    ("unknown author", {"spans": edited(0, span_type="narrator")}, "span_type"),
    ("other version", {"schema_version": 3}, "schema_version"),
    (
        "verdict",
        {"verification": {"solved": True, "reward": 1.0, "failure_category": "wrong_answer"}},
        "failure_category is 'wrong_answer'",
    ),
]


@pytest.mark.parametrize(("what", "changes", "reason"), REFUSALS)
def test_a_trajectory_that_disagrees_with_itself_is_refused(what, changes, reason):
    with pytest.raises(ValidationError, match=reason):
        Trajectory(**fields(**changes))


def test_a_trajectory_and_its_spans_are_frozen():
    trajectory = Trajectory(**fields())
    with pytest.raises(ValidationError, match="frozen"):
        trajectory.policy_version = 9
    with pytest.raises(ValidationError, match="frozen"):
        Span(span_type="user", start=0, end=1, segment_key="user").end = 2
