"""Who wrote which tokens."""

import pytest

from core.trajectory.spans import Span, SpanType

TYPES = [
    (SpanType.SYSTEM, False, False),
    (SpanType.USER, False, False),
    (SpanType.ASSISTANT_TEXT, True, False),
    (SpanType.ASSISTANT_TOOL_CALL, True, True),
    (SpanType.TOOL_RESULT, False, False),
    (SpanType.ASSISTANT_FINAL, True, True),
]


def span(span_type, key, turn_id=None):
    return Span(span_type=span_type, start=0, end=1, segment_key=key, turn_id=turn_id)


@pytest.mark.parametrize(("span_type", "is_model", "is_critical"), TYPES)
def test_the_student_wrote_text_calls_and_answers_only(span_type, is_model, is_critical):
    tokens = span(span_type, "x")
    assert (tokens.is_model, tokens.is_critical) == (is_model, is_critical)


@pytest.mark.parametrize(
    ("key", "agreeing"),
    [
        ("sys", {"system"}),
        ("privileged", {"system"}),
        ("user", {"user"}),
        ("gen:0:text", {"assistant_text"}),
        ("gen:12:block", {"assistant_tool_call", "assistant_final"}),
        ("obs:3", {"tool_result"}),
        ("document", {span_type.value for span_type in SpanType}),
    ],
)
def test_a_segment_key_tells_its_author(key, agreeing):
    assert {kind.value for kind in SpanType if span(kind, key).key_agrees} == agreeing


@pytest.mark.parametrize(("turn_id", "agrees"), [(None, True), (2, True), (0, False), (3, False)])
def test_a_segment_key_tells_its_turn(turn_id, agrees):
    assert span(SpanType.TOOL_RESULT, "obs:2", turn_id).key_agrees is agrees
