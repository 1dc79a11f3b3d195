"""Held-out episodes of one student state."""

import pytest

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.errors import RecipeError
from core.evaluation.evaluate import evaluate, evaluation_slice
from core.rollout.limits import EpisodeLimits, SamplingSpec


def world():
    return make_environment("calculator", prompt_style="compact")


@pytest.fixture(scope="module")
def tasks():
    return make_splits(world(), {"eval": 2}, 7, "easy")["eval"]


@pytest.fixture
def judged(small_toy, tasks):
    """Return f(samples, temperature, slots): an evaluation of one small student."""

    def run(samples, temperature=1.0, slots=4):
        limits = EpisodeLimits(
            max_turns=1, max_new_tokens_per_turn=6, max_total_tokens=90,
            max_parse_errors=1, max_repeated_calls=1,
        )  # fmt: skip
        return evaluate(
            small_toy(1), world, tasks, limits, SamplingSpec(temperature, 1.0, 0),
            seed=3, policy_version=5, model_digest="d", slots=slots, samples_per_task=samples,
        )  # fmt: skip

    return run


def test_each_task_is_tried_as_often_as_asked_for_and_differently(judged, tasks):
    done = judged(3)
    ids = [f"{task.task_id}:eval:v5:s{n}" for task in tasks for n in range(3)]
    assert [row.trajectory_id for row in done.trajectories] == ids
    assert [row.task_id for row in done.trajectories] == [
        task.task_id for task in tasks for _ in range(3)
    ]
    assert len({tuple(row.token_ids) for row in done.trajectories}) == 6
    assert set(done.stats.pass_at_k) == {"1", "2", "3"}


def test_an_episode_does_not_depend_on_who_is_decoded_beside_it(judged):
    assert judged(2, slots=1).trajectories == judged(2, slots=4).trajectories


def test_one_episode_of_each_task_is_named_after_the_task_alone(judged, tasks):
    done = judged(1, temperature=0.0)
    assert [row.trajectory_id for row in done.trajectories] == [
        f"{task.task_id}:eval:v5" for task in tasks
    ]
    assert done.stats.pass_at_k == {}


def test_a_slice_lies_in_its_split(tasks):
    assert evaluation_slice(tasks, offset=1, count=None) == tasks[1:]
    with pytest.raises(RecipeError, match="exceeds"):
        evaluation_slice(tasks, offset=1, count=2)
