from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import AlignmentError, TokenizerMismatchError
from core.trajectory.alignment import AlignmentMap, align
from core.trajectory.spans import Span


@dataclass(frozen=True)
class Sequence:
    """A conversation from (span type, segment key, token ids)."""

    parts: tuple
    trajectory_id: str = "t0"
    tokenizer_digest: str = "a" * 64
    token_ids: list = field(default_factory=list)
    spans: list = field(default_factory=list)

    def __post_init__(self):
        ids, spans = [], []
        for span_type, key, part in self.parts:
            end = len(ids) + len(part)
            spans.append(
                Span.model_construct(
                    span_type=span_type, start=len(ids), end=end, segment_key=key, text=""
                )
            )
            ids += part
        object.__setattr__(self, "token_ids", ids)
        object.__setattr__(self, "spans", spans)


PARTS = (
    ("system", "sys", [1, 2, 3]),
    ("user", "user", [4, 5, 6, 7, 8]),
    ("assistant_tool_call", "gen:0:block", [10, 11]),
    ("tool_result", "obs:0", [20, 21, 22, 23, 24, 25, 26]),
    ("assistant_final", "gen:1:block", [30]),
)
HINT = ("system", "privileged", [90, 91, 92, 93, 94, 95, 96])
TARGETS = [8, 9, 17]
WEIGHTS = [1.0, 2.0, 0.5]
STUDENT = Sequence(PARTS)


def view(*parts, digest="a" * 64):
    return Sequence(tuple(parts), tokenizer_digest=digest)


def with_part(index, part):
    return view(PARTS[0], HINT, *PARTS[1:index], part, *PARTS[index + 1 :])


def test_a_standard_teacher_predicts_where_the_student_does():
    aligned = align(STUDENT, TARGETS, WEIGHTS)
    assert aligned.student_prediction_positions == [7, 8, 16]
    assert aligned.teacher_prediction_positions == [7, 8, 16]
    assert aligned.target_token_ids == [10, 11, 30]
    assert aligned.model_token_mask == [True, True, True]
    assert aligned.token_weights == WEIGHTS
    assert aligned.span_types == ["assistant_tool_call", "assistant_tool_call", "assistant_final"]
    assert len(aligned) == 3


def test_a_hint_of_seven_tokens_moves_the_teacher_by_seven():
    """C09: no shift at all, because the teacher's prompt was ignored."""
    aligned = align(STUDENT, TARGETS, WEIGHTS, view(PARTS[0], HINT, *PARTS[1:]))
    assert aligned.student_prediction_positions == [7, 8, 16]
    assert aligned.teacher_prediction_positions == [14, 15, 23]


def test_the_target_is_predicted_one_position_earlier_on_both_sides():
    """C08: teacher scores written at token positions are off by one; one-token replies get none."""
    teacher = view(PARTS[0], HINT, *PARTS[1:])
    aligned = align(STUDENT, [17], [1.0], teacher)
    student_at, teacher_at = (
        aligned.student_prediction_positions,
        aligned.teacher_prediction_positions,
    )
    assert STUDENT.token_ids[student_at[0] + 1] == 30
    assert teacher.token_ids[teacher_at[0] + 1] == 30


def test_a_hint_between_turns_moves_only_what_follows_it():
    late = view(*PARTS[:4], HINT, PARTS[4])
    assert align(STUDENT, TARGETS, WEIGHTS, late).teacher_prediction_positions == [7, 8, 23]


def test_segments_after_the_last_target_need_no_counterpart():
    cut = view(PARTS[0], HINT, *PARTS[1:3])
    assert align(STUDENT, [8, 9], [1.0, 1.0], cut).teacher_prediction_positions == [14, 15]


def test_no_target_gives_an_empty_map():
    assert len(align(STUDENT, [], [])) == 0
    assert len(align(STUDENT, [], [], view(HINT))) == 0


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(0, 5), st.integers(1, 9))
def test_teacher_and_student_predict_the_same_tokens(lengths, at, hint_length):
    parts, token = [("user", "user", [999])], 0
    for index, length in enumerate(lengths):
        kind = "assistant_text" if index % 2 == 0 else "tool_result"
        parts.append((kind, f"s{index}", list(range(token, token + length))))
        token += length
    student = Sequence(tuple(parts))
    cut = min(at, len(parts))
    hint = ("system", "privileged", [5000] * hint_length)
    teacher = Sequence((*parts[:cut], hint, *parts[cut:]))
    targets = [j for j in range(len(student.token_ids)) if _writes(student, j)]
    aligned = align(student, targets, [1.0] * len(targets), teacher)
    rows = zip(
        aligned.student_prediction_positions, aligned.teacher_prediction_positions, strict=True
    )
    for ours, theirs in rows:
        assert student.token_ids[ours + 1] == teacher.token_ids[theirs + 1]


def _writes(student, position):
    span = next(s for s in student.spans if s.start <= position < s.end)
    return span.span_type == "assistant_text"


REFUSED_VIEWS = [
    (view(PARTS[0], HINT, *PARTS[2:]), "'user' is missing"),
    (view(PARTS[0], HINT, *PARTS[1:4]), "'gen:1:block' is missing"),
    (view(PARTS[0], HINT, *PARTS[1:], ("user", "user", [1])), "'user' occurs twice"),
    (view(("system", "", [1]), *PARTS), "has no key"),
    (with_part(4, ("assistant_final", "gen:1:block", [30, 31])), "has 1 tokens but 2"),
    (with_part(4, ("assistant_final", "gen:1:block", [31])), "has token 30 at 0 but 31"),
    (with_part(1, ("user", "user", [4, 5, 6])), "'user' has 5 tokens but 3"),  # C26: hint kept,
    (with_part(3, ("tool_result", "obs:0", [20, 21, 22, 23, 24, 25, 27])), "token 26 at 6 but 27"),
    (view(PARTS[1], PARTS[0], *PARTS[2:]), "'user' is out of order"),
]


@pytest.mark.parametrize(("teacher", "message"), REFUSED_VIEWS)
def test_a_view_that_does_not_hold_the_student_s_segments_is_refused(teacher, message):
    with pytest.raises(AlignmentError, match=message):
        align(STUDENT, TARGETS, WEIGHTS, teacher)


def test_a_segment_without_a_key_is_refused_on_the_student_s_side_too():
    student = Sequence((PARTS[0], ("assistant_text", "", [5])))
    with pytest.raises(AlignmentError, match="no key on the student's"):
        align(student, [3], [1.0], view(*PARTS))


def test_a_target_that_would_be_the_teacher_s_first_token_is_refused():
    student = Sequence((("user", "user", [1]), ("assistant_text", "gen:0:text", [2])))
    bare = view(("assistant_text", "gen:0:text", [2]))
    with pytest.raises(AlignmentError, match="'user' is missing"):
        align(student, [1], [1.0], bare)
    with pytest.raises(AlignmentError, match="out of order"):
        align(student, [1], [1.0], view(*bare.parts, ("user", "user", [1])))


def test_another_tokenizer_is_refused_although_the_ids_agree():
    with pytest.raises(TokenizerMismatchError, match="tokenizer"):
        align(STUDENT, TARGETS, WEIGHTS, view(*PARTS, digest="b" * 64))


@pytest.mark.parametrize(
    ("positions", "weights", "message"),
    [
        ([0], [1.0], "outside"),
        ([18], [1.0], "outside"),
        ([12], [1.0], "not written"),
        ([9, 8], [1.0, 1.0], "ascend"),
        ([8, 8], [1.0, 1.0], "ascend"),
        ([8], [1.0, 1.0], "1 positions but 2 weights"),
        ([8], [-1.0], "weight -1.0"),
        ([8], [float("nan")], "weight nan"),
    ],
)
def test_a_target_or_weight_that_cannot_be_is_refused(positions, weights, message):
    with pytest.raises(AlignmentError, match=message):
        align(STUDENT, positions, weights)


def test_spans_that_do_not_tile_are_refused():
    broken = Sequence(PARTS)
    object.__setattr__(broken, "spans", broken.spans[1:])
    with pytest.raises(AlignmentError, match="start at 0"):
        align(broken, TARGETS, WEIGHTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher_prediction_positions": [0]}, "rows"),
        ({"teacher_prediction_positions": [-1, 1]}, "negative"),
        ({"student_prediction_positions": [1, 1]}, "ascend"),
        ({"model_token_mask": [True, False]}, "context"),
        ({"token_weights": [1.0, -1.0]}, "weight -1.0"),
    ],
)
def test_a_map_that_contradicts_itself_is_refused(change, message):
    sound = AlignmentMap("t0", [0, 1], [0, 1], [5, 6], [True, True], [1.0, 1.0], ["user", "user"])
    with pytest.raises(AlignmentError, match=message):
        replace(sound, **change)
