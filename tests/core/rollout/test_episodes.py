import math
import threading
import time
from collections import Counter
from functools import partial
from random import Random, SystemRandom

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.environments.base import ToolLimits
from core.environments.calculator import Calculator
from core.environments.protocol import render_final, render_tool_call
from core.errors import InputError
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.noise import stream_key
from core.rollout.sampler import support
from core.seeding import derive_seed
from core.trajectory.trajectory import TerminationReason, Trajectory

LIMITS = EpisodeLimits(4, 16, 320, max_parse_errors=4)
PLAIN = SamplingSpec()


def run(backend, calculator, tasks, sampling=PLAIN, limits=LIMITS, **changes):
    facts = {
        "seed": 5,
        "trajectory_ids": [f"{task.task_id}:0" for task in tasks],
        "policy_version": 7,
        "model_digest": "ab" * 32,
        "slots": 32,
    }
    return run_episodes(backend, calculator, tasks, limits, sampling, **{**facts, **changes})


def by_id(trajectories: list[Trajectory]) -> dict[str, Trajectory]:
    return {trajectory.trajectory_id: trajectory for trajectory in trajectories}


@pytest.mark.parametrize("sampling", [SamplingSpec(), SamplingSpec(0.8, 0.9, 60), SamplingSpec(0)])
def test_slots_and_order_reach_no_bit_of_an_episode(toy, calculator, tasks, sampling):
    expected = by_id(run(toy, calculator, tasks, sampling))
    assert len(expected) == len(tasks)
    assert sum(len(trajectory.turns) for trajectory in expected.values()) > len(tasks)
    for slots in (1, 7, 32):
        shuffled = list(tasks)
        Random(slots).shuffle(shuffled)
        # Equal as records: tokens, log-probabilities, kept mass, turns, verdict.
        assert by_id(run(toy, calculator, shuffled, sampling, slots=slots)) == expected


def test_trajectories_come_in_the_order_of_the_tasks(toy, calculator, tasks):
    trajectories = run(toy, calculator, tasks, slots=5)
    assert [trajectory.task_id for trajectory in trajectories] == [task.task_id for task in tasks]
    first = trajectories[0]
    assert (first.policy_version, first.model_digest) == (7, "ab" * 32)
    assert first.tokenizer_digest == toy.tokenizer.digest
    assert first.environment == "calculator"
    assert {k: first.metadata[k] for k in ("source", "seed", "temperature", "top_p", "top_k")} == {
        "source": "policy",
        "seed": 5,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
    }


def teacher_forced(backend, trajectory: Trajectory, sampling: SamplingSpec):
    """Log-probabilities and kept mass of the model's tokens, from one forward pass."""
    ids = torch.tensor([trajectory.token_ids])
    targets = torch.tensor(trajectory.target_positions())
    with torch.no_grad():
        hidden = backend.hidden_states(ids, torch.tensor([ids.shape[1]]))[0, targets - 1]
        logits = backend.project(hidden).double() / (sampling.temperature or 1.0)
    probabilities = logits.softmax(-1)
    kept = torch.ones(len(targets), dtype=torch.float64)
    if sampling.is_truncated:
        inside = support(probabilities, sampling)
        kept = (probabilities * inside).sum(-1)
        probabilities = probabilities * inside / kept[:, None]
    chosen = probabilities.gather(1, ids[0, targets][:, None])[:, 0]
    return chosen.log().tolist(), kept.tolist()


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSpec(),
        SamplingSpec(0.6),
        SamplingSpec(1.7),
        SamplingSpec(1.0, 0.8),
        SamplingSpec(1.0, 1.0, 20),
        SamplingSpec(0.9, 0.7, 30),
        SamplingSpec(0.0),
    ],
    ids=str,
)
def test_recorded_logprobs_are_those_of_a_teacher_forced_pass(toy, calculator, tasks, sampling):
    for trajectory in run(toy, calculator, tasks[:12], sampling):
        logprobs, kept = teacher_forced(toy, trajectory, sampling)
        assert trajectory.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert trajectory.kept_mass == (
            pytest.approx(kept, abs=1e-4) if sampling.is_truncated else []
        )


def test_greedy_episodes_ignore_the_seed_and_sampled_ones_do_not(toy, calculator, tasks):
    def tokens(sampling, seed):
        return [t.token_ids for t in run(toy, calculator, tasks[:6], sampling, seed=seed)]

    assert tokens(SamplingSpec(0), 1) == tokens(SamplingSpec(0), 2)
    pairs = zip(tokens(PLAIN, 1), tokens(PLAIN, 2), strict=True)
    assert all(one != other for one, other in pairs)


def test_one_task_under_two_names_is_sampled_twice(toy, calculator, tasks):
    twice = [tasks[0], tasks[0]]
    first, second = run(toy, calculator, twice, trajectory_ids=["a", "b"])
    assert first.token_ids != second.token_ids
    assert stream_key(5, "a", 0) == derive_seed(5, "rollout", "a", 0)


def test_progress_counts_every_episode(toy, calculator, tasks):
    seen: list[tuple[int, int]] = []
    run(
        toy, calculator, tasks[:9], slots=4, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(done, 9) for done in range(1, 10)]


def test_a_broken_world_ends_its_own_episode_only(toy, calculator, tasks):
    class Fragile(Calculator):
        def reset(self, task):
            if task.task_id == tasks[3].task_id:
                raise RuntimeError("no such world")
            return super().reset(task)

    usual = run(toy, calculator, tasks[:8])
    broken = run(toy, lambda: Fragile(prompt_style="compact"), tasks[:8])
    assert broken[3].termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert broken[:3] + broken[4:] == usual[:3] + usual[4:]


def test_a_model_without_room_beyond_the_limit_still_runs(calculator, tasks):
    config = ToyConfig(32, 1, 2, 48, max_position_embeddings=128)
    backend = ToyBackend(config, 0, ToyTokenizer())
    limits = EpisodeLimits(4, 16, 128, max_parse_errors=9)
    assert by_id(run(backend, calculator, tasks[:6], limits=limits, slots=1)) == by_id(
        run(backend, calculator, tasks[:6], limits=limits)
    )


def test_no_tasks_give_no_trajectories(toy, calculator):
    assert run(toy, calculator, []) == []


def test_a_scripted_student_solves_its_task(scripted, calculator, tasks):
    task = next(task for task in tasks if "expression" in task.metadata)
    codec = ToyTokenizer()
    call = codec.encode(render_tool_call("calculator", {"expression": task.metadata["expression"]}))
    final = codec.encode(render_final(task.answer))
    # The script names the token of every position, so where the turns start must be known first.
    (probe,) = run(scripted([50]), calculator, [task], limits=EpisodeLimits(1, 1, 320))
    prompt = probe.spans[1].end
    script = [50] * prompt + call + [50] * 300
    (called,) = run(scripted(script), calculator, [task], limits=EpisodeLimits(1, 60, 320))
    script = script[: len(called.token_ids)] + final
    (trajectory,) = run(scripted(script), calculator, [task], limits=EpisodeLimits(3, 60, 320))
    assert trajectory.termination_reason is TerminationReason.FINAL_ANSWER
    assert trajectory.solved
    assert trajectory.counters.tool_execution_successes == 1
    assert trajectory.token_ids == called.token_ids + final


@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(st.integers(0, ToyTokenizer().vocab_size - 1), min_size=1, max_size=120),
    texts=st.lists(
        st.sampled_from(
            [
                render_tool_call("calculator", {"expression": "1 + 1"}),
                render_tool_call("oven", {}),
                render_final("4"),
                "<tool_call>{</tool_call>",
                "<|im_end|>",
                "<final>",
            ]
        ),
        max_size=6,
    ),
    limits=st.builds(
        EpisodeLimits,
        max_turns=st.integers(1, 5),
        max_new_tokens_per_turn=st.integers(1, 40),
        max_total_tokens=st.integers(1, 200),
        max_parse_errors=st.integers(0, 4),
        max_repeated_calls=st.integers(1, 3),
    ),
    slots=st.integers(1, 4),
)
def test_every_episode_ends_for_one_reason_within_its_limits(
    scripted, calculator, tasks, script, texts, limits, slots
):
    codec = ToyTokenizer()
    mixed = [*script, *(i for text in texts for i in codec.encode(text))]
    trajectories = run(scripted(mixed), calculator, tasks[:3], limits=limits, slots=slots)
    assert len(trajectories) == 3
    for trajectory in trajectories:
        assert isinstance(trajectory.termination_reason, TerminationReason)
        counters = trajectory.counters
        assert counters.assistant_turns == len(trajectory.turns) <= limits.max_turns
        sampled = Counter(
            s.turn_id for s in trajectory.spans if s.is_model for _ in range(s.start, s.end)
        )
        assert all(count <= limits.max_new_tokens_per_turn for count in sampled.values())
        last_sampled = max(trajectory.target_positions(), default=0)
        assert last_sampled < max(limits.max_total_tokens, 1)
        assert len(trajectory.logprobs) == sum(sampled.values())
        assert all(math.isfinite(value) and value <= 0 for value in trajectory.logprobs)
        assert counters.emitted_tool_calls >= counters.parsed_tool_calls
        calls = counters.tool_execution_successes + counters.tool_execution_errors
        assert counters.parsed_tool_calls == calls + counters.repeated_call_terminations
        is_final = trajectory.termination_reason is TerminationReason.FINAL_ANSWER
        assert counters.final_answers_verified == is_final


def test_more_tokens_than_the_model_has_positions_are_refused_up_front(toy, calculator, tasks):
    with pytest.raises(InputError, match="max_total_tokens 600 exceeds the 512 positions"):
        run(toy, calculator, tasks, limits=EpisodeLimits(2, 10, 600))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trajectory_ids": ["a"]}, "1 trajectory ids for 2 tasks"),
        ({"trajectory_ids": ["a", "a"]}, "same trajectory id"),
        ({"slots": 0}, "slots is 0"),
    ],
)
def test_what_cannot_be_run_is_refused(toy, calculator, tasks, changes, message):
    with pytest.raises(InputError, match=message):
        run(toy, calculator, tasks[:2], **changes)


class Sleepy(Calculator):
    slow = True

    def __init__(self, longest: float, **params) -> None:
        super().__init__(prompt_style="compact", **params)
        self.longest = longest

    def step(self, call):
        time.sleep(SystemRandom().uniform(0, self.longest))
        return super().step(call)


@pytest.fixture
def caller(scripted):
    """A model that writes prose and a call, in turns, wherever its turns begin."""
    codec = ToyTokenizer()
    call = codec.encode(render_tool_call("calculator", {"expression": "1 + 1"}))
    return scripted([*codec.encode("x" * 40), *call])


CALLERS = EpisodeLimits(4, 70, 480, max_parse_errors=4, max_repeated_calls=9)


@pytest.mark.parametrize("params", [{}, {"protocol_version": "v3", "max_calls_per_turn": 2}])
def test_slow_tools_reach_no_bit_of_a_record(caller, tasks, params):
    many = [tasks[index % 24] for index in range(32)]
    facts = {"limits": CALLERS, "trajectory_ids": [f"e{index}" for index in range(32)]}
    expected = run(caller, lambda: Calculator("compact", **params), many, slots=1, **facts)
    assert sum(one.counters.tool_execution_successes for one in expected) >= 32
    made = partial(Sleepy, 0.02, **params)
    assert run(caller, made, many, slots=32, **facts) == expected


def test_a_tool_that_hangs_holds_up_no_other_episode(caller, calculator, tasks):
    class Hanging(Sleepy):
        def tool_limits(self, tool):
            return ToolLimits(seconds=0.3)

        def step(self, call):
            if self.task.task_id == tasks[1].task_id:
                threading.Event().wait(60)
            return super().step(call)

    usual = run(caller, calculator, tasks[:4], limits=CALLERS)
    started = time.perf_counter()
    ended = run(caller, lambda: Hanging(0), tasks[:4], limits=CALLERS)
    assert time.perf_counter() - started < 20
    assert ended[1].termination_reason is TerminationReason.ENVIRONMENT_ERROR
    assert ended[1].turns[-1].tool_results[0].error_code == "TOOL_TIMEOUT"
    assert ended[:1] + ended[2:] == usual[:1] + usual[2:]
