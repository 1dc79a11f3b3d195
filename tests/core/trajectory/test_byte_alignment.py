import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.environments.protocol import parse_turn, render_final, render_tool_call
from core.errors import AlignmentError
from core.models.toy_tokenizer import ToyTokenizer
from core.trajectory.byte_alignment import align_bytes, boundaries
from core.trajectory.transcript import Transcript, turn_text

CODEC = ToyTokenizer()
FACTS = {
    "trajectory_id": "t0",
    "task_id": "task",
    "environment": "calculator",
    "verification": {"solved": False, "reward": 0.0, "failure_category": "wrong_answer"},
    "termination_reason": "max_turns",
}


class Bytes:
    """One token per byte, and the two control tags."""

    vocab_size, pad_id, eos_ids, digest = 258, 0, (257,), "bytes"
    TAGS = ("<|im_start|>", "<|im_end|>")

    def encode(self, text):
        ids, rest = [], text
        while rest:
            tag = next((tag for tag in self.TAGS if rest.startswith(tag)), None)
            piece = tag or rest[0]
            ids += [256 + self.TAGS.index(tag)] if tag else piece.encode()
            rest = rest[len(piece) :]
        return ids

    def decode(self, token_ids):
        pieces = [bytes([i]) if i < 256 else self.TAGS[i - 256].encode() for i in token_ids]
        return b"".join(pieces).decode("utf-8", "replace")


class Pairs(Bytes):
    """Two characters per token, so that most boundaries fall elsewhere."""

    vocab_size, digest = 1 << 40, "pairs"

    def encode(self, text):
        return [int.from_bytes(text[i : i + 2].encode(), "big") for i in range(0, len(text), 2)]

    def decode(self, token_ids):
        return b"".join(i.to_bytes((i.bit_length() + 7) // 8, "big") for i in token_ids).decode()


class Lower(Bytes):
    """A tokenizer that rewrites its text."""

    digest = "lower"

    def encode(self, text):
        return super().encode(text.lower())


def episode(*turns):
    transcript = Transcript(CODEC)
    transcript.start("You compute.", "Compute 7 - 3.")
    for n, text in enumerate(turns):
        ids = CODEC.encode(text)
        transcript.add_generated(
            ids, parse_turn(turn_text(CODEC, ids)), logprobs=[-1.0] * len(ids),
            tool_call_ids=[f"c{n}"] if "tool_call" in text else (),
        )  # fmt: skip
        if n + 1 < len(turns):
            transcript.add_observation("4", tool_call_id=f"c{n}", env_state_id=None)
    return transcript.build(**FACTS)


CALL = render_tool_call("calculator", {"expression": "7 - 3"})


def texts_of(chunks, trajectory, aligned, codec):
    for chunk in chunks:
        own = trajectory.token_ids[chunk.student_start : chunk.student_stop]
        theirs = aligned.teacher_ids[chunk.teacher_start : chunk.teacher_stop]
        yield CODEC.decode(own), codec.decode(theirs), chunk.num_bytes


def test_boundaries_are_bytes_at_which_a_token_ends():
    ids = CODEC.encode("Compute 7")
    ends = boundaries(ids, CODEC, "Compute 7")
    assert list(ends) == [0, 8, 9]
    assert list(boundaries(Pairs().encode("Compute 7"), Pairs(), "Compute 7")) == [0, 2, 4, 6, 8, 9]


def test_one_tokenizer_on_both_sides_gives_one_token_per_chunk():
    trajectory = episode("so " + CALL, render_final("4"))
    aligned = align_bytes(trajectory, CODEC, ToyTokenizer())
    assert aligned.teacher_ids == trajectory.token_ids
    targets = [chunk.student_start for chunk in aligned.chunks]
    assert targets == [chunk.teacher_start for chunk in aligned.chunks]
    assert targets == trajectory.target_positions()
    assert aligned.unaligned_bytes == 0


@pytest.mark.parametrize("codec", [Bytes(), Pairs()], ids=lambda codec: codec.digest)
@settings(max_examples=40, deadline=None)
@given(prose=st.text(st.characters(codec="utf-8", exclude_characters="<\x00\ufffd"), max_size=12))
def test_chunks_hold_the_same_bytes_on_both_sides_and_stay_in_their_span(codec, prose):
    trajectory = episode(prose + CALL, render_final("4"))
    aligned = align_bytes(trajectory, CODEC, codec)
    for own, theirs, num_bytes in texts_of(aligned.chunks, trajectory, aligned, codec):
        assert own == theirs
        assert len(own.encode()) == num_bytes > 0
    covered = {j for c in aligned.chunks for j in range(c.student_start, c.student_stop)}
    assert covered <= set(trajectory.target_positions())
    borders = {span.start for span in trajectory.spans} | {span.end for span in trajectory.spans}
    for chunk in aligned.chunks:
        inside = range(chunk.student_start + 1, chunk.student_stop)
        assert borders.isdisjoint(inside)
    written = sum(
        len(CODEC.decode(trajectory.token_ids[span.start : span.end]).encode())
        for span in trajectory.spans
        if span.is_model
    )
    assert aligned.model_bytes == written
    assert aligned.unaligned_bytes == written - sum(c.num_bytes for c in aligned.chunks)
    assert aligned.unaligned_bytes == 0


def test_a_tokenizer_that_rewrites_its_text_leaves_bytes_unaligned_and_counts_them():
    trajectory = episode("ab Compute it")
    aligned = align_bytes(trajectory, CODEC, Lower())
    pieces = [own for own, _, _ in texts_of(aligned.chunks, trajectory, aligned, Lower())]
    assert "".join(pieces) == "ab "
    assert aligned.unaligned_bytes == len("Compute it")


def test_a_character_cut_by_the_student_is_not_paired():
    half = CODEC.encode("é")[:1]
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    ids = [*CODEC.encode("ab"), *half]
    transcript.add_generated(ids, parse_turn(turn_text(CODEC, ids)), logprobs=[-1.0] * 3)
    aligned = align_bytes(transcript.build(**FACTS), CODEC, Bytes())
    assert sum(chunk.num_bytes for chunk in aligned.chunks) == 2
    assert aligned.unaligned_bytes > 0


def test_what_follows_a_broken_character_is_aligned_again():
    half = CODEC.encode("é")[:1]
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    ids = [*CODEC.encode("ab"), *half, *CODEC.encode("cd")]
    transcript.add_generated(ids, parse_turn(turn_text(CODEC, ids)), logprobs=[-1.0] * len(ids))
    trajectory = transcript.build(**FACTS)
    aligned = align_bytes(trajectory, CODEC, Bytes())
    pieces = [own for own, _, _ in texts_of(aligned.chunks, trajectory, aligned, Bytes())]
    assert pieces == ["a", "b", "c", "d"]


def test_another_tokenizer_than_the_rollouts_is_refused():
    with pytest.raises(AlignmentError, match="another tokenizer than the student's"):
        align_bytes(episode("ab"), Bytes(), CODEC)


def test_one_tokenizer_on_both_sides_meets_before_every_token():
    trajectory = episode("so " + CALL, render_final("4"))
    met = align_bytes(trajectory, CODEC, ToyTokenizer()).meetings
    positions = [meeting.student_position for meeting in met]
    assert positions == [meeting.teacher_position for meeting in met]
    assert positions == trajectory.target_positions()


@settings(max_examples=40, deadline=None)
@given(prose=st.text(st.characters(codec="utf-8", exclude_characters="<\x00\ufffd"), max_size=12))
def test_meetings_stand_at_the_same_byte_of_the_same_span(prose):
    trajectory, codec = episode(prose + CALL, render_final("4")), ToyTokenizer("second")
    aligned = align_bytes(trajectory, CODEC, codec)
    assert aligned.meetings
    for meeting in aligned.meetings:
        heard = CODEC.decode(trajectory.token_ids[: meeting.student_position])
        assert heard == codec.decode(aligned.teacher_ids[: meeting.teacher_position])
    assert {m.student_position for m in aligned.meetings} <= set(trajectory.target_positions())
    starts = {span.start for span in trajectory.spans if span.is_model and span.start < span.end}
    assert starts <= {meeting.student_position for meeting in aligned.meetings}


def test_nobody_meets_after_half_a_character():
    """The student waits for the other half; the teacher read a replacement character."""
    half = CODEC.encode("é")[:1]
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    ids = [*CODEC.encode("ab"), *half, *CODEC.encode("cd")]
    transcript.add_generated(ids, parse_turn(turn_text(CODEC, ids)), logprobs=[-1.0] * len(ids))
    trajectory = transcript.build(**FACTS)
    start = trajectory.target_positions()[0]
    met = align_bytes(trajectory, CODEC, Bytes()).meetings
    assert [meeting.student_position - start for meeting in met] == [0, 1, 2, 4]
