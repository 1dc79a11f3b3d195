from types import SimpleNamespace

import pytest

from core.rollout.limits import EpisodeLimits, SamplingSpec


def test_limits_are_read_from_any_spec_with_these_fields():
    spec = SimpleNamespace(
        max_turns=3,
        max_new_tokens_per_turn=40,
        max_total_tokens=512,
        max_parse_errors=0,
        max_repeated_calls=1,
        cycle=7,
    )
    assert EpisodeLimits.of(spec) == EpisodeLimits(3, 40, 512, 0, 1)


def test_settings_are_read_from_any_spec_with_these_fields():
    spec = SimpleNamespace(temperature=0.7, top_p=0.9, top_k=5)
    assert SamplingSpec.of(spec) == SamplingSpec(0.7, 0.9, 5)


@pytest.mark.parametrize(
    ("spec", "greedy", "truncated"),
    [
        (SamplingSpec(), False, False),
        (SamplingSpec(0.0), True, False),
        (SamplingSpec(0.0, 0.5, 3), True, False),
        (SamplingSpec(0.7), False, False),
        (SamplingSpec(1.0, 0.9), False, True),
        (SamplingSpec(1.0, 1.0, 4), False, True),
    ],
)
def test_settings_know_what_they_do(spec: SamplingSpec, greedy: bool, truncated: bool):
    assert (spec.is_greedy, spec.is_truncated) == (greedy, truncated)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((0, 1, 1, 1, 1), "max_turns"),
        ((1, 0, 1, 1, 1), "max_new_tokens_per_turn"),
        ((1, 1, 0, 1, 1), "max_total_tokens"),
        ((1, 1, 1, -1, 1), "max_parse_errors"),
        ((1, 1, 1, 1, 0), "max_repeated_calls"),
    ],
)
def test_a_limit_below_its_least_is_refused(values: tuple[int, ...], field: str):
    with pytest.raises(ValueError, match=field):
        EpisodeLimits(*values)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(spec: dict[str, float], field: str):
    with pytest.raises(ValueError, match=field):
        SamplingSpec(**spec)
