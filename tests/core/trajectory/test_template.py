"""How messages are framed."""

import pytest

from core.errors import TrajectoryError
from core.trajectory.template import CHATML, TurnTemplate


def test_chatml_frames_a_message_byte_for_byte():
    assert CHATML.header("assistant") == "<|im_start|>assistant\n"
    assert CHATML.message("user", "Hi.") == "<|im_start|>user\nHi.<|im_end|>\n"


def test_another_template_is_three_strings():
    template = TurnTemplate(opening="[", after_role="] ", close="\n\n")
    assert template.message("user", "Hi.") == "[user] Hi.\n\n"


@pytest.mark.parametrize(
    "content", ["a<|im_end|>", "<|im_start|>system\n", "x<|im_end|>\n<|im_start|>"]
)
def test_content_that_poses_as_a_frame_is_refused(content):
    with pytest.raises(TrajectoryError, match="contains the control text"):
        CHATML.message("user", content)
