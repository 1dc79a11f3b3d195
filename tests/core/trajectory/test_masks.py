import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.trajectory.masks import (
    CRITICAL_SPAN_TYPES,
    MODEL_SPAN_TYPES,
    check_masks,
    check_target_positions,
    check_tiling,
    critical_mask,
    model_mask,
    target_positions,
)
from core.trajectory.spans import CRITICAL_SPANS, MODEL_SPANS, SpanType

LAYOUT = [
    ("system", 0, 10), ("user", 10, 20), ("assistant_text", 20, 30),
    ("assistant_tool_call", 30, 40), ("tool_result", 40, 50), ("assistant_final", 50, 60),
]  # fmt: skip


def test_masks_follow_the_spans():
    mask = model_mask(LAYOUT, 60)
    assert [j for j, flag in enumerate(mask) if flag] == [*range(20, 40), *range(50, 60)]
    critical = critical_mask(LAYOUT, 60)
    assert [j for j, flag in enumerate(critical) if flag] == [*range(30, 40), *range(50, 60)]


def test_the_first_token_is_never_a_target():
    """C16: token index 0 is falsy, and masks that start there have run to the end elsewhere."""
    mask = model_mask([("assistant_text", 0, 4)], 4)
    assert mask == [True] * 4
    assert target_positions(mask) == [1, 2, 3]


def test_the_first_generated_token_is_a_target():
    """C06: slicing at the prompt's length drops it."""
    assert target_positions(model_mask([("user", 0, 5), ("assistant_final", 5, 6)], 6)) == [5]


def test_a_tool_result_between_two_turns_of_the_student_is_not_trained():
    """C20: without a user marker before it, a tool result has been trained on elsewhere."""
    spans = [("assistant_tool_call", 0, 2), ("tool_result", 2, 5), ("assistant_final", 5, 7)]
    assert model_mask(spans, 7) == [True, True, False, False, False, True, True]


def test_the_types_are_those_of_the_schema():
    assert MODEL_SPAN_TYPES == MODEL_SPANS
    assert CRITICAL_SPAN_TYPES == CRITICAL_SPANS


@given(st.lists(st.tuples(st.sampled_from(list(SpanType)), st.integers(1, 5)), max_size=8))
def test_every_token_has_the_flag_of_its_author(parts):
    spans, cursor = [], 0
    for span_type, length in parts:
        spans.append((span_type, cursor, cursor + length))
        cursor += length
    model, critical = model_mask(spans, cursor), critical_mask(spans, cursor)
    for span_type, start, end in spans:
        assert model[start:end] == [span_type in MODEL_SPANS] * (end - start)
        assert critical[start:end] == [span_type in CRITICAL_SPANS] * (end - start)
    check_masks(spans, model, critical)
    check_target_positions(target_positions(model), model)


def test_a_mask_that_trains_a_tool_s_output_is_refused_although_the_spans_are_right():
    model = model_mask(LAYOUT, 60)
    model[45] = True
    with pytest.raises(ValueError, match="token 45"):
        check_masks(LAYOUT, model, critical_mask(LAYOUT, 60))


def test_masks_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="critical flags"):
        check_masks(LAYOUT, [True] * 60, [True] * 59)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([("user", 0, 5), ("assistant_text", 6, 10)], "start at 5"),
        ([("user", 0, 5), ("assistant_text", 4, 10)], "start at 5"),
        ([("user", 0, 5), ("assistant_text", 5, 5), ("user", 5, 10)], "hold a token"),
        ([("user", 0, 9)], "end at 9"),
    ],
)
def test_spans_must_tile_the_tokens(spans, message):
    with pytest.raises(ValueError, match=message):
        check_tiling(spans, 10)


@pytest.mark.parametrize(
    ("positions", "message"),
    [([0], "outside"), ([60], "outside"), ([-1], "outside"), ([45], "not written"),
     ([21, 21], "ascend"), ([22, 21], "ascend")],
)  # fmt: skip
def test_positions_that_are_no_targets_are_refused(positions, message):
    with pytest.raises(ValueError, match=message):
        check_target_positions(positions, model_mask(LAYOUT, 60))
