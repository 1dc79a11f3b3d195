import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.statistics import hierarchical_bootstrap, holm, paired_bootstrap, wilson


def test_wilson_equals_the_textbook_value():
    # R 4.3: prop.test(7, 10, correct = FALSE)$conf.int -> 0.3967781 0.8922087
    interval = wilson(7, 10)
    assert interval.estimate == 0.7
    assert interval.lower == pytest.approx(0.3967781, abs=1e-6)
    assert interval.upper == pytest.approx(0.8922087, abs=1e-6)


def test_wilson_ends_are_exact_at_none_and_all():
    assert wilson(0, 24).lower == 0.0
    assert wilson(0, 24).upper == pytest.approx(0.13797, abs=1e-5)
    assert wilson(24, 24).upper == 1.0
    assert wilson(24, 24).lower == pytest.approx(1 - 0.13797, abs=1e-5)


def test_paired_bootstrap_equals_the_reference_on_five_pairs():
    # Reference: R = 10,000, seed 20260801 -> (n, mean, lower, upper) = (5, 0.2, -0.4, 0.8).
    interval = paired_bootstrap([1, 0, -1, 0, 1.0], seed=20260801)
    assert (interval.count, interval.estimate) == (5, 0.2)
    assert interval.lower == pytest.approx(-0.4, abs=1e-12)
    assert interval.upper == pytest.approx(0.8, abs=1e-12)


def test_paired_bootstrap_equals_the_reference_on_384_pairs():
    # Counts of the published comparison: 325 ties, 53 losses, 6 wins. The order of pairs enters
    # the draws, so only the estimate is exact; the ends agree to one resampling step.
    differences = [0.0] * 325 + [-1.0] * 53 + [1.0] * 6
    interval = paired_bootstrap(differences, seed=20260801, resamples=4_000)
    assert interval.estimate == pytest.approx(-0.12239583333333333, abs=1e-15)
    assert interval.lower == pytest.approx(-0.15885416666666666, abs=6e-3)
    assert interval.upper == pytest.approx(-0.0859375, abs=6e-3)


def test_holm_rejects_step_by_step():
    # alpha 0.05, m = 3: 0.01 <= 0.05/3; 0.02 <= 0.05/2; 0.06 > 0.05/1.
    assert holm({"a": 0.01, "b": 0.06, "c": 0.02}) == {"a": True, "c": True, "b": False}
    # 0.03 > 0.05/2 stops the procedure, so 0.04 is kept although it is below alpha.
    assert holm({"a": 0.01, "b": 0.03, "c": 0.04}) == {"a": True, "b": False, "c": False}


def test_crossed_interval_is_conditional_below_five_seeds():
    tasks = {f"t{i}": float(i % 2) for i in range(40)}
    few = hierarchical_bootstrap({1: tasks, 2: tasks}, seed=0, resamples=500)
    many = hierarchical_bootstrap(dict.fromkeys(range(5), tasks), seed=0, resamples=500)
    assert few.conditional_on_seeds
    assert not many.conditional_on_seeds
    assert few.estimate == many.estimate == 0.5


def test_below_five_seeds_the_tasks_are_the_units():
    # Two seeds whose means per task are 0 and 1, half each: the interval is that of 40 coin flips.
    outcomes = {seed: {f"t{i}": float(i % 2) for i in range(40)} for seed in (1, 2)}
    crossed = hierarchical_bootstrap(outcomes, seed=0, resamples=4_000)
    flat = paired_bootstrap([float(i % 2) for i in range(40)], seed=0, resamples=4_000)
    assert crossed.lower == pytest.approx(flat.lower, abs=0.026)
    assert crossed.upper == pytest.approx(flat.upper, abs=0.026)


def test_the_interval_of_a_balanced_design_is_student_s():
    # Seeds differ by a constant and tasks not at all: mean ± t(0.975, 4 df) · s/√5, where s is the
    # standard deviation of the five seeds' means, 0.158113883: 0.5 ± 0.196324.
    values = (0.3, 0.4, 0.5, 0.6, 0.7)
    outcomes = {seed: {f"t{i}": value for i in range(30)} for seed, value in enumerate(values)}
    interval = hierarchical_bootstrap(outcomes, seed=4, resamples=20_000)
    assert interval.estimate == pytest.approx(0.5)
    assert interval.upper - interval.lower == pytest.approx(2 * 0.196324, rel=0.05)


def _covered(rng: np.random.Generator, spread: tuple[float, float], tasks: int) -> bool:
    """Draw one crossed experiment of known mean zero, and ask whether its interval holds it."""
    of_seeds, of_tasks = rng.normal(0, spread[0], (5, 1)), rng.normal(0, spread[1], (1, tasks))
    values_ST = of_seeds + of_tasks + rng.normal(0, 0.5, (5, tasks))
    outcomes = {s: {str(t): v for t, v in enumerate(row)} for s, row in enumerate(values_ST)}
    interval = hierarchical_bootstrap(outcomes, seed=int(rng.integers(10**6)), resamples=400)
    return interval.lower <= 0.0 <= interval.upper


@pytest.mark.parametrize("spread", [(0.2, 0.1), (0.1, 0.2), (0.1, 0.0), (0.03, 0.3)])
def test_intervals_of_five_seeds_cover_the_truth_within_two_points(spread):
    """Simulated coverage of a nominal 95 %; one standard error of 800 experiments is 0.8 %."""
    rng = np.random.default_rng(11)
    covered = np.mean([_covered(rng, spread, tasks=48) for _ in range(800)])
    assert 0.93 <= covered <= 0.97


def _covered_rate(rng: np.random.Generator) -> bool:
    """The same for the paired difference of two arms whose outcomes are 0 or 1."""
    tasks_T = rng.normal(0, 1.2, (1, 48))
    rates = [1 / (1 + np.exp(-(shift + tasks_T + rng.normal(0, 0.6, (5, 1))))) for shift in (0, 0)]
    left, right = ((rng.random((5, 48)) < rate).astype(float) for rate in rates)
    outcomes = {s: {str(t): v for t, v in enumerate(row)} for s, row in enumerate(left - right)}
    interval = hierarchical_bootstrap(outcomes, seed=int(rng.integers(10**6)), resamples=400)
    return interval.lower <= 0.0 <= interval.upper


def test_intervals_of_success_differences_cover_the_truth_within_two_points():
    rng = np.random.default_rng(12)
    assert 0.93 <= np.mean([_covered_rate(rng) for _ in range(800)]) <= 0.97


@pytest.mark.parametrize("tasks", [6, 12, 48])
def test_intervals_for_given_seeds_cover_the_truth_within_two_points(tasks):
    """Three seeds that stay as they are, and few tasks: what varies is drawn with the tasks."""
    rng = np.random.default_rng(13)

    def covered() -> bool:
        values_ST = rng.normal(0.0, 1.0, (1, tasks)) + rng.normal(0.0, 0.5, (3, tasks))
        outcomes = {s: {str(t): v for t, v in enumerate(row)} for s, row in enumerate(values_ST)}
        interval = hierarchical_bootstrap(outcomes, seed=int(rng.integers(10**6)), resamples=400)
        return interval.lower <= 0.0 <= interval.upper

    assert 0.93 <= np.mean([covered() for _ in range(800)]) <= 0.97


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_contains_its_estimate(counts):
    successes, trials = counts
    interval = wilson(successes, trials)
    assert 0.0 <= interval.lower <= interval.estimate <= interval.upper <= 1.0


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_wilson_refuses_what_is_no_proportion(successes, trials):
    with pytest.raises(ValueError, match="not a proportion"):
        wilson(successes, trials)


def test_wilson_refuses_a_confidence_of_one():
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, confidence=1.0)


def test_bootstraps_refuse_empty_designs():
    with pytest.raises(ValueError, match="at least one pair"):
        paired_bootstrap([], seed=0)
    with pytest.raises(ValueError, match="same non-empty tasks"):
        hierarchical_bootstrap({}, seed=0)
    with pytest.raises(ValueError, match="same non-empty tasks"):
        hierarchical_bootstrap({1: {"a": 1.0}, 2: {"b": 1.0}}, seed=0)


def test_holm_refuses_what_is_no_probability():
    with pytest.raises(ValueError, match="p value"):
        holm({"a": 1.5})
