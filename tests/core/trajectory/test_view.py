"""A trajectory with a hint, as its teacher reads it."""

import pytest

from core.environments.protocol import (
    parse_turn,
    render_final,
    render_tool_call,
    render_tool_result,
)
from core.errors import TokenizerMismatchError, TrajectoryError
from core.models.toy_tokenizer import ToyTokenizer
from core.trajectory.transcript import Transcript, turn_text
from core.trajectory.view import teacher_view

CODEC = ToyTokenizer()
CALL = render_tool_call("calculator", {"expression": "7 - 3"})
FACTS = {
    "trajectory_id": "calc-train-0:oracle",
    "task_id": "calc-train-0",
    "environment": "calculator",
    "verification": {"solved": True, "reward": 1.0, "failure_category": "solved"},
    "termination_reason": "final_answer",
}


class OtherCodec(ToyTokenizer):
    """The same tokens under another name."""

    def __init__(self):
        super().__init__()
        self.digest = "other"


def say(transcript, text):
    token_ids = CODEC.encode(text)
    transcript.add_generated(token_ids, parse_turn(turn_text(CODEC, token_ids)))


def episode(prose=""):
    transcript = Transcript(CODEC)
    transcript.start("You compute.", "Compute 7 - 3.")
    say(transcript, prose + CALL)
    transcript.add_observation(render_tool_result(True, "4"))
    say(transcript, render_final("4"))
    return transcript


def test_a_hint_is_one_more_system_segment_and_a_constant_shift():
    trajectory = episode(prose="So: ").build(**FACTS)
    token_ids, spans = teacher_view(trajectory, "The answer is 4.", CODEC)
    shift = len(CODEC.encode("<|im_start|>system\nThe answer is 4.<|im_end|>\n"))
    assert len(token_ids) == len(trajectory.token_ids) + shift
    assert [span.segment_key for span in spans][:3] == ["sys", "privileged", "user"]
    by_key = {span.segment_key: span for span in spans}
    for span in trajectory.spans:
        twin = by_key[span.segment_key]
        assert twin.start - span.start == (0 if span.segment_key == "sys" else shift)
        assert token_ids[twin.start : twin.end] == trajectory.token_ids[span.start : span.end]


def test_a_teacher_that_acts_itself_reads_the_same_prompt_as_one_that_scores():
    acting = Transcript(CODEC)
    prompt = acting.start("You compute.", "Compute 7 - 3.", privileged="The answer is 4.")
    scoring = teacher_view(episode().build(**FACTS), "The answer is 4.", CODEC)
    assert scoring.token_ids[: len(prompt)] == prompt


def test_student_and_teacher_are_asked_with_the_same_words():
    """C24: a teacher that thinks where the student may not differs at every first token."""
    trajectory = episode().build(**FACTS)
    view = teacher_view(trajectory, "The answer is 4.", CODEC)
    starts = zip(trajectory.spans, [s for s in view.spans if s.segment_key != "privileged"],
                 strict=True)  # fmt: skip
    asked = [(own, theirs) for own, theirs in starts if own.is_model]
    assert len(asked) == 2
    for own, theirs in asked:
        before = trajectory.token_ids[own.start - 8 : own.start]
        assert view.token_ids[theirs.start - 8 : theirs.start] == before


def test_a_view_needs_the_tokenizer_of_the_rollout():
    with pytest.raises(TokenizerMismatchError, match="another tokenizer"):
        teacher_view(episode().build(**FACTS), "hint", OtherCodec())


def test_a_trajectory_takes_one_hint_after_its_system_prompt():
    transcript = Transcript(CODEC)
    transcript.start("s", "u", privileged="p")
    say(transcript, render_final("4"))
    with pytest.raises(TrajectoryError, match="privileged"):
        teacher_view(transcript.build(**FACTS), "hint", CODEC)
