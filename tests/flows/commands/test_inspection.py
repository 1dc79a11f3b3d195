import io

import pytest
from rich.console import Console

from core.runs.inspection import EpisodeView, TokenRow
from flows.commands.inspection import print_inspection, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 日本", "plain ü 日本"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nb\r\x00", "a\\nb\\r\\x00"),
        ("\u202edlrow", "\\u202edlrow"),
    ],
)
def test_no_control_character_reaches_a_terminal(text, shown):
    assert visible(text) == shown


def test_hostile_words_of_an_episode_are_neither_markup_nor_control():
    row = TokenRow(
        position=0,
        token_id=1,
        span_type="user",
        segment_key="user",
        model=False,
        critical=False,
        weight=None,
        logprob=None,
        teacher_logprob=None,
        teacher_entropy=None,
        divergence=None,
        piece="[red]\x1b[2J",
    )
    view = EpisodeView(
        trajectory_id="[bold]x\x1b]0;title\x07",
        task_id="t",
        environment="e",
        policy_version=0,
        solved=False,
        termination_reason="max_turns",
        expected="[link=http://x]",
        predicted=None,
        tokens=(row,),
        texts=(("user", "[blink]\x1b[31m"),),
    )
    stream = io.StringIO()
    print_inspection(view.model_dump(mode="json"), Console(file=stream, width=200))
    said = stream.getvalue()
    assert "\x1b" not in said
    for literal in ("[bold]x", "[link=http://x]", "[blink]", "[red]"):
        assert literal in said
