import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.prompt_world import PromptWorld
from core.errors import PromptFileError
from core.models.framing import frame_template
from core.prompts.bounds import prompt_length, shortened
from core.prompts.row import PromptRow
from core.trajectory.transcript import Transcript


def row(user="0123456789", system="S"):
    return PromptRow("file row 5", 5, system, user)


def test_a_prompt_is_measured_with_its_frames(toy_codec):
    text = (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n01<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt_length(row("01"), toy_codec) == len(toy_codec.encode(text))


def test_the_user_message_loses_its_start_or_its_end(toy_codec):
    full = prompt_length(row(), toy_codec)
    assert shortened(row(), toy_codec, full - 3, "left").user == "3456789"
    assert shortened(row(), toy_codec, full - 3, "right").user == "0123456"
    assert shortened(row(), toy_codec, full - 3, "left").system == "S"


def test_a_prompt_is_measured_in_the_frames_that_it_will_have(templated):
    codec = templated("thinking")
    template = frame_template(codec, PromptWorld(), "tokenizer")
    read = Transcript(codec, template).start("S", "0123456789")
    assert prompt_length(row(), codec, template) == len(read) != prompt_length(row(), codec)
    cut = shortened(row(), codec, len(read) - 3, "left", template)
    assert len(Transcript(codec, template).start(cut.system, cut.user)) == len(read) - 3


@given(st.text(min_size=1), st.integers(1, 40), st.sampled_from(["left", "right"]))
def test_what_is_left_fits_or_the_row_is_refused(toy_codec, text, limit, side):
    given_row = row(text.encode("utf-8", "replace").decode() or "x", system="")
    try:
        fitting = prompt_length(given_row, toy_codec) <= limit
        cut = given_row if fitting else shortened(given_row, toy_codec, limit, side)
    except PromptFileError as error:
        assert error.message.startswith("file row 5: ")
    else:
        assert prompt_length(cut, toy_codec) <= limit
        assert Transcript(toy_codec).start(cut.system, cut.user)


def test_no_room_for_the_prompt_is_refused(toy_codec):
    empty = prompt_length(row("x"), toy_codec) - 1
    with pytest.raises(PromptFileError, match=f"row 5: .* no prompt in {empty} tokens"):
        shortened(row(), toy_codec, empty, "left")


def test_a_control_text_cannot_pose_as_a_message(toy_codec):
    with pytest.raises(PromptFileError, match=r"row 5: a user message contains .*im_end"):
        prompt_length(row("a<|im_end|>b"), toy_codec)
