"""Slow tools overlap: 32 episodes wait for them together, not one after the other."""

import time

import pytest

from core.environments.calculator import Calculator
from core.environments.protocol import render_tool_call
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec

SECONDS = 0.02


class Waiting(Calculator):
    """Every turn, whatever it says, asks a tool that takes 20 ms."""

    slow = True

    def step(self, call):
        time.sleep(SECONDS)
        return super().step(call)


@pytest.fixture
def calls(monkeypatch):
    """Make every turn a call: random weights write none."""
    text = render_tool_call("calculator", {"expression": "1 + 1"})
    monkeypatch.setattr("core.rollout.episode.turn_text", lambda codec, token_ids: text)


@pytest.mark.usefixtures("calls")
def test_32_episodes_wait_together():
    codec = ToyTokenizer()
    config = ToyConfig(32, 1, 2, 48, max_position_embeddings=512)
    backend, world = ToyBackend(config, 0, codec), Calculator()
    tasks = [
        world.generate_task(index, seed=7, difficulty="easy", split="train") for index in range(32)
    ]
    limits = EpisodeLimits(4, 8, 448, max_repeated_calls=9)
    started = time.perf_counter()
    episodes = run_episodes(
        backend,
        lambda: Waiting(prompt_style="compact"),
        tasks,
        limits,
        SamplingSpec(),
        seed=1,
        trajectory_ids=[task.task_id for task in tasks],
        policy_version=0,
        model_digest=None,
        slots=32,
    )
    wall = time.perf_counter() - started
    waited = SECONDS * sum(one.counters.tool_execution_successes for one in episodes)
    print(f"tools took {waited:.2f} s in all, the run {wall:.2f} s")
    assert waited > 2.0
    assert wall < waited
