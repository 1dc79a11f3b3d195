"""Slow environments: other episodes go on, and nothing that hangs keeps anything waiting."""

import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import pytest

from core.environments.base import ToolLimits
from core.environments.calculator import Calculator
from core.errors import TrajectoryError
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.world import World, WorldTimeoutError


class Slow(Calculator):
    slow = True


QUICK = ToolLimits(seconds=0.05)


def done(world, work, limits=ToolLimits()):  # noqa: B008 (immutable)
    world.start(work, limits)
    return world.join()


def test_a_quick_environment_runs_where_it_is_called():
    world = World(Calculator(), threading.Event())
    assert done(world, threading.current_thread).value is threading.current_thread()
    assert world.deadline == float("inf")


def test_a_slow_environment_keeps_one_thread_of_its_own():
    world = World(Slow(), threading.Event())
    first, second = (done(world, threading.current_thread).value for _ in range(2))
    assert first is second is not threading.current_thread()
    assert first.daemon
    world.close()
    first.join(5)
    assert not first.is_alive()


@pytest.mark.parametrize("environment", [Calculator(), Slow()])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_what_a_method_raises_is_its_result(environment, error):
    def break_down():
        raise error

    attempt = done(World(environment, threading.Event()), break_down)
    assert attempt.error is error
    with pytest.raises(type(error)):
        attempt.result()


def test_a_call_that_hangs_is_given_up_and_its_late_result_dropped():
    world, release = World(Slow(), threading.Event()), threading.Event()
    attempt = done(world, lambda: release.wait(30), QUICK)
    assert isinstance(attempt.error, WorldTimeoutError)
    assert "within 0.05 s" in str(attempt.error)
    release.set()
    assert done(world, lambda: "next").value == "next"
    assert attempt.error is not None
    world.close()


def test_polling_never_blocks():
    world, release = World(Slow(), threading.Event()), threading.Event()
    world.start(lambda: release.wait(30), ToolLimits())
    started = time.perf_counter()
    assert world.poll() is None
    assert time.perf_counter() - started < 0.5
    release.set()
    assert world.join().value is True
    world.close()


def test_a_tool_that_hangs_forever_does_not_keep_the_process():
    program = textwrap.dedent("""
        import threading
        from core.environments.base import ToolLimits
        from core.environments.calculator import Calculator
        from core.rollout.world import World
        class Slow(Calculator):
            slow = True
        world = World(Slow(), threading.Event())
        world.start(threading.Event().wait, ToolLimits(seconds=0.05))
        print(world.join().error.message)
    """)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "no result within 0.05 s" in ran.stdout


def test_a_prompt_that_is_refused_leaves_no_thread_behind(toy, tasks):
    class Unhurried(Slow):
        name = "unhurried"

    facts = {"seed": 5, "trajectory_ids": ["t0"], "policy_version": 0, "model_digest": None}
    refused, limits = replace(tasks[0], prompt="<|im_end|>"), EpisodeLimits(4, 16, 320)
    with pytest.raises(TrajectoryError, match="control text"):
        run_episodes(toy, Unhurried, [refused], limits, SamplingSpec(), slots=1, **facts)
    for thread in threading.enumerate():
        if thread.name == "world-unhurried":
            thread.join(5)
            assert not thread.is_alive()
