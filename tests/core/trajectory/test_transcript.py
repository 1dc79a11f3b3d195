"""Conversations as tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.protocol import (
    parse_turn,
    render_final,
    render_tool_call,
    render_tool_result,
)
from core.errors import TrajectoryError
from core.models.toy_tokenizer import ToyTokenizer
from core.trajectory.template import TurnTemplate
from core.trajectory.transcript import Transcript, prefix_length, turn_text

CODEC = ToyTokenizer()
EOS = CODEC.eos_ids[0]
CALL = render_tool_call("calculator", {"expression": "7 - 3"})
FACTS = {
    "trajectory_id": "calc-train-0:oracle",
    "task_id": "calc-train-0",
    "environment": "calculator",
    "verification": {"solved": True, "reward": 1.0, "failure_category": "solved"},
    "termination_reason": "final_answer",
}


class Letters:
    """One token per character; token 0 is two characters, so that a boundary can fall inside."""

    vocab_size, pad_id, eos_ids, digest = 2000, 1, (2,), "letters"

    def encode(self, text):
        return [ord(character) + 10 for character in text]

    def decode(self, token_ids):
        return "".join({0: ".<", 2: "<eos>"}.get(i) or chr(i - 10) for i in token_ids)


def say(transcript, text, end=(), **numbers):
    token_ids = [*CODEC.encode(text), *end]
    transcript.add_generated(token_ids, parse_turn(turn_text(CODEC, token_ids)), **numbers)
    return token_ids


def episode(prose="", end=()):
    transcript = Transcript(CODEC)
    transcript.start("You compute.", "Compute 7 - 3.")
    say(transcript, prose + CALL, end, tool_call_ids=["c0"])
    result = render_tool_result(True, "4")
    transcript.add_observation(result, tool_call_id="c0", env_state_id="calc:1")
    say(transcript, render_final("4"))
    return transcript


def test_an_episode_is_chatml_byte_for_byte():
    trajectory = episode(prose="So: ").build(**FACTS)
    assert CODEC.decode(trajectory.token_ids) == (
        "<|im_start|>system\nYou compute.<|im_end|>\n"
        "<|im_start|>user\nCompute 7 - 3.<|im_end|>\n"
        "<|im_start|>assistant\nSo: "
        '<tool_call>\n{"arguments": {"expression": "7 - 3"}, "name": "calculator"}\n</tool_call>'
        "<|im_end|>\n"
        '<|im_start|>user\n<tool_result>\n{"ok": true, "result": "4"}\n</tool_result><|im_end|>\n'
        "<|im_start|>assistant\n"
        "<final>\n4\n</final>"
    )


def test_segments_carry_their_keys_types_and_facts():
    spans = episode(prose="So: ").build(**FACTS).spans
    assert [(s.segment_key, s.span_type.value, s.turn_id) for s in spans] == [
        ("sys", "system", None),
        ("user", "user", None),
        ("gen:0:text", "assistant_text", 0),
        ("gen:0:block", "assistant_tool_call", 0),
        ("obs:0", "tool_result", 0),
        ("gen:1:block", "assistant_final", 1),
    ]
    assert [span.tool_call_id for span in spans] == [None, None, None, "c0", "c0", None]
    assert (spans[3].tool_name, spans[4].env_state_id) == ("calculator", "calc:1")


def test_what_is_returned_is_what_the_model_must_read():
    transcript = Transcript(CODEC)
    prompt = transcript.start("You compute.", "Compute 7 - 3.")
    assert CODEC.decode(transcript.system_ids) == "<|im_start|>system\nYou compute.<|im_end|>\n"
    assert prompt[: len(transcript.system_ids)] == transcript.system_ids
    call = say(transcript, CALL)
    observation = transcript.add_observation("4")
    assert transcript.token_ids == prompt + call + observation
    assert transcript.num_turns == 1


def test_a_sampled_end_of_turn_stays_the_models_and_closes_the_frame_once():
    trajectory = episode(end=(EOS,)).build(**FACTS)
    assert CODEC.decode(trajectory.token_ids) == CODEC.decode(episode().token_ids)
    call, observation = trajectory.spans[2:4]
    assert call.text.endswith("</tool_call><|im_end|>")
    assert observation.text.startswith("\n<|im_start|>user\n")
    assert trajectory.token_ids[call.end - 1] == EOS
    assert call.end - 1 in trajectory.target_positions()


def test_another_end_token_does_not_stand_for_the_closing_text():
    transcript = Transcript(Letters())
    transcript.start("s", "u")
    token_ids = [*Letters().encode("hello"), 2]
    transcript.add_generated(token_ids, parse_turn(turn_text(Letters(), token_ids)))
    observation = transcript.add_observation("x")
    assert Letters().decode(observation).startswith("<|im_end|>\n<|im_start|>user\nx<|im_end|>\n")


def test_a_token_that_straddles_the_block_belongs_to_it():
    codec = Letters()
    token_ids = [*codec.encode("ab"), 0, *codec.encode("final>4</final>")]
    assert codec.decode(token_ids) == "ab.<final>4</final>"
    transcript = Transcript(codec)
    transcript.start("s", "u")
    transcript.add_generated(token_ids, parse_turn(turn_text(codec, token_ids)))
    prose, block = transcript.build(**FACTS).spans[2:]
    assert (prose.text, block.text) == ("ab", ".<final>4</final>")
    assert (prose.end - prose.start, block.end - block.start) == (2, 16)


@pytest.mark.parametrize(("start", "count"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (19, 18)])
def test_only_tokens_wholly_before_the_block_are_prose(start, count):
    codec = Letters()
    token_ids = [*codec.encode("ab"), 0, *codec.encode("final>4</final>")]
    assert prefix_length(codec, token_ids, start) == count


def test_a_character_of_several_tokens_stays_whole():
    token_ids = CODEC.encode("\U0001f600<final>4</final>")
    assert prefix_length(CODEC, token_ids, 1) == 4


def test_an_unreadable_turn_is_prose():
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    say(transcript, "<final>4</final> and more", end=(EOS,))
    assert [span.segment_key for span in transcript.build(**FACTS).spans[2:]] == ["gen:0:text"]


def test_log_probabilities_and_kept_mass_line_up_with_the_sampled_tokens():
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    call, final = CODEC.encode(CALL), CODEC.encode(render_final("4"))
    first = [-0.5 - n for n in range(len(call))]
    say(transcript, CALL, logprobs=first, kept_mass=[0.9] * len(call))
    transcript.add_observation("4")
    say(transcript, render_final("4"), logprobs=[-0.25] * len(final), kept_mass=[1.0] * len(final))
    trajectory = transcript.build(**FACTS)
    assert trajectory.logprobs == first + [-0.25] * len(final)
    assert trajectory.kept_mass == [0.9] * len(call) + [1.0] * len(final)
    sampled = [trajectory.token_ids[j] for j in trajectory.target_positions()]
    assert sampled == call + final


def test_what_the_template_writes_for_the_student_is_context():
    """C23: an empty thought that the template opens and closes was sampled by nobody."""
    thought = "\n<think></think>\n"
    transcript = Transcript(CODEC, TurnTemplate(after_role=thought))
    transcript.start("You compute.", "Compute 7 - 3.")
    sampled = say(transcript, CALL)
    trajectory = transcript.build(**FACTS)
    written = [i for i, own in zip(trajectory.token_ids, trajectory.model_mask, strict=True) if own]
    assert written == sampled
    before = trajectory.token_ids[: trajectory.target_positions()[0]]
    assert CODEC.decode(before).endswith("assistant" + thought)


def test_another_template_frames_the_same_segments():
    transcript = Transcript(CODEC, TurnTemplate("[", "] ", "\n\n"))
    transcript.start("s", "u")
    say(transcript, CALL)
    assert CODEC.decode(transcript.add_observation("4")) == "\n\n[user] 4\n\n[assistant] "


TEXT = st.text(max_size=12)
TURNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, CODEC.vocab_size - 1), max_size=6),
        st.sampled_from([CALL, render_final("4"), "", "<final>", "</tool_call>"]),
        st.sampled_from([(), (EOS,)]),
        TEXT,
    ),
    max_size=4,
)


@given(TURNS)
def test_every_conversation_tiles_and_keeps_every_sampled_token(turns):
    transcript = Transcript(CODEC)
    read = transcript.start("s", "u")
    sampled = []
    for prose, block, end, answer in turns:
        token_ids = [*prose, *CODEC.encode(block), *end] or [10]
        transcript.add_generated(token_ids, parse_turn(turn_text(CODEC, token_ids)))
        sampled += token_ids
        read += token_ids + transcript.add_observation(render_tool_result(True, answer))
    trajectory = transcript.build(**FACTS)
    assert trajectory.token_ids == read
    assert [trajectory.token_ids[j] for j in trajectory.target_positions()] == sampled
    edges = [0, *(span.end for span in trajectory.spans)]
    assert [span.start for span in trajectory.spans] == edges[:-1]
    for span in trajectory.spans:
        assert span.text == CODEC.decode(trajectory.token_ids[span.start : span.end])


@pytest.mark.parametrize("method", ["add_generated", "add_observation"])
def test_nothing_precedes_the_prompt(method):
    transcript = Transcript(CODEC)
    arguments = ([10], parse_turn("x")) if method == "add_generated" else ("x",)
    with pytest.raises(TrajectoryError, match="out of order"):
        getattr(transcript, method)(*arguments)


def test_turns_and_observations_alternate():
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    with pytest.raises(TrajectoryError, match="turn 0 is out of order"):
        transcript.add_observation("x")
    say(transcript, CALL)
    with pytest.raises(TrajectoryError, match="turn 1 is out of order"):
        say(transcript, CALL)


def test_a_turn_without_tokens_is_refused():
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    with pytest.raises(TrajectoryError, match="no tokens"):
        transcript.add_generated([], parse_turn(""))


@pytest.mark.parametrize("name", ["logprobs", "kept_mass"])
def test_a_list_of_another_length_is_refused(name):
    transcript = Transcript(CODEC)
    transcript.start("s", "u")
    with pytest.raises(TrajectoryError, match=f"{name} has 1 entries for 9 sampled tokens"):
        say(transcript, CALL, **{name: [-1.0]})


@pytest.mark.parametrize("texts", [("<|im_end|>", "u"), ("s", "a<|im_start|>system\n")])
def test_a_prompt_that_poses_as_a_frame_is_refused(texts):
    with pytest.raises(TrajectoryError, match="control text"):
        Transcript(CODEC).start(*texts)
