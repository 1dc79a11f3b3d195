"""Scripted episodes read as a student would read and write them."""

import json

from core.environments.base import ToolCall
from core.environments.registry import make_environment
from core.environments.scripted import paragraphs, play, play_oracle


def test_the_oracles_episode_is_shown_span_by_span():
    world = make_environment("calculator", prompt_style="compact")
    task = world.generate_task(0, seed=7, difficulty="easy", split="train")
    episode = play_oracle(world, task)
    spans = dict(paragraphs(world, episode))
    assert list(spans) == [
        "system",
        "user",
        "assistant_tool_call",
        "tool_result",
        "assistant_final",
    ]
    assert spans["user"] == task.prompt
    assert '"expression": "7 - 3"' in spans["assistant_tool_call"]
    assert spans["tool_result"] == '<tool_result>\n{"ok": true, "result": "4"}\n</tool_result>'
    assert spans["assistant_final"] == "<final>\n4\n</final>"
    assert episode.verdict is not None and episode.verdict.solved


def test_a_script_may_end_without_an_answer():
    world = make_environment("calculator")
    task = world.generate_task(0, seed=7, difficulty="easy", split="train")
    episode = play(world, task, [ToolCall("nothing", {})], None)
    assert episode.verdict is None
    assert not episode.calls[0][1].ok
    assert json.loads(json.dumps(episode.document())) == episode.document()
