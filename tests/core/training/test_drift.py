"""Sampler and training pass are compared token by token, under one temperature and one policy."""

import math
from types import SimpleNamespace

import pytest

from core.training.drift import COLUMNS, sampler_drift, sampler_temperature
from core.training.update import update

PARTS = [("system", 3), ("user", 4), ("assistant_final", 4)]


def episode(logprobs, *, version=3, kept=(), temperature=1.0):
    """Three prompt tokens, then one token of the model per log-probability."""
    return SimpleNamespace(
        logprobs=list(logprobs),
        kept_mass=list(kept),
        policy_version=version,
        model_mask=[False] * 3 + [True] * len(logprobs),
        metadata={"temperature": temperature},
    )


def example(*prediction_positions):
    return SimpleNamespace(prediction_positions=list(prediction_positions))


def test_mean_and_maximum_are_those_of_the_selected_tokens():
    episodes = [episode([-1.0, -2.0, -3.0]), episode([-0.5])]
    found = sampler_drift(episodes, [example(2, 4), example(2)], [-1.25, -3.0, -0.25], 3)
    assert found == dict(zip(COLUMNS, (round(0.5 / 3, 6), 0.25), strict=True))


def test_truncation_is_undone_before_the_comparison():
    whole = math.log(0.3)
    truncated = episode([whole - math.log(0.8)], kept=[0.8])
    assert sampler_drift([truncated], [example(2)], [whole], 3) == dict.fromkeys(COLUMNS, 0.0)


def test_other_weights_and_unsampled_traces_have_no_drift():
    assert sampler_drift([episode([-1.0], version=2)], [example(2)], [-1.0], 3) == {}
    assert sampler_drift([episode([])], [example()], [], 3) == {}
    assert sampler_drift([], [], [], 3) == {}


@pytest.mark.parametrize(("written", "read"), [(0.7, 0.7), (1.0, 1.0), (0.0, 1.0)])
def test_greedy_episodes_were_recorded_at_one(written, read):
    assert sampler_temperature([episode([-1.0], temperature=written)]) == read


def test_an_update_on_its_own_episodes_records_rounding(
    small_toy, scored_by, state_of, write_episode
):
    student, teacher = small_toy(1), small_toy(2)
    episodes = [write_episode(PARTS, n, trajectory_id=f"t{n}", sampler=student) for n in range(3)]
    scored, spec, runtime = scored_by(teacher, episodes)
    own = update(student, state_of(student), episodes, scored, spec, runtime, teacher=teacher)
    row = own.rows[0]
    assert 0.0 <= row["sampler_drift_mean"] <= row["sampler_drift_max"] < 1e-4
    stranger = [write_episode(PARTS, n, trajectory_id=f"t{n}", sampler=teacher) for n in range(3)]
    fresh = small_toy(1)
    scored, spec, runtime = scored_by(teacher, stranger)
    other = update(fresh, state_of(fresh), stranger, scored, spec, runtime, teacher=teacher)
    assert other.rows[0]["sampler_drift_max"] > 0.01
