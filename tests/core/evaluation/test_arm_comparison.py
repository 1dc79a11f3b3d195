import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.evaluation.arm_comparison import (
    NO_CLAIM,
    ONE_TASK,
    compare_arms,
    paired_differences,
    pooled_and_mean_rate,
)
from core.evaluation.crossed import components
from core.evaluation.statistics import wilson


def _arm(rate: float, seeds: int, tasks: int = 96, stream: int = 0) -> dict[int, dict[str, float]]:
    rng = np.random.default_rng([stream, int(rate * 1000)])
    return {s: {f"t{t}": float(rng.random() < rate) for t in range(tasks)} for s in range(seeds)}


def test_a_published_comparison_is_found_again():
    # 325 ties, 53 losses, 6 wins over three seeds and 128 tasks; means of the seeds as published:
    # −0.1015625, −0.09375, −0.171875, and −0.1224 overall. By task the published reanalysis is
    # [−0.161, −0.086].
    counts = {1234: (5, 18), 20260727: (0, 12), 20260801: (1, 23)}
    fresh, frozen = {}, {}
    for number, (seed, (wins, losses)) in enumerate(counts.items()):
        order = np.random.default_rng(number).permutation(128)
        signs = dict.fromkeys(order[:wins], 1) | dict.fromkeys(order[wins : wins + losses], -1)
        fresh[seed] = {f"t{t}": float(signs.get(t, 0) == 1) for t in range(128)}
        frozen[seed] = {f"t{t}": float(signs.get(t, 0) == -1) for t in range(128)}
    (row,) = compare_arms({"fresh": fresh, "frozen": frozen}, [("fresh", "frozen")], seed=1)
    assert row.effect.estimate == pytest.approx(-0.12239583333333333, abs=1e-15)
    assert (row.wins, row.losses, row.ties) == (6, 53, 325)
    assert row.effect.lower == pytest.approx(-0.161, abs=0.01)
    assert row.effect.upper == pytest.approx(-0.086, abs=0.01)
    assert row.verdict == "worse, for these seeds"


def test_one_seed_claims_nothing():
    arms = {"a": _arm(0.9, 1), "b": _arm(0.1, 1)}
    (row,) = compare_arms(arms, [("a", "b")], seed=1)
    assert (row.p_value, row.decided, row.advice) == (None, None, None)
    assert row.verdict == NO_CLAIM == "one seed: no significance is claimed"


def test_holm_decides_over_all_pairs_together():
    arms = {"base": _arm(0.4, 5), "good": _arm(0.7, 5), "same": _arm(0.41, 5)}
    rows = compare_arms(arms, [("good", "base"), ("same", "base")], seed=1)
    assert [row.verdict for row in rows] == ["better", "undecided"]


def test_arms_that_share_everything_differ_by_nothing():
    arm = _arm(0.5, 5)
    (row,) = compare_arms({"a": arm, "b": arm}, [("a", "b")], seed=1)
    # 96 tasks without a difference leave room for Wilson's upper bound of 0 in 96.
    bound = wilson(0, 96).upper
    assert (row.effect.lower, row.effect.estimate, row.effect.upper) == (-bound, 0.0, bound)
    assert (row.p_value, row.verdict) == (1.0, "undecided")
    assert row.advice is not None
    assert (row.advice.detectable, row.advice.seeds_needed) == (0.0, None)


def test_a_difference_without_variance_is_a_sign_test_over_tasks():
    ones = {seed: {f"t{t}": 1.0 for t in range(8)} for seed in range(5)}
    noughts = {seed: {f"t{t}": 0.0 for t in range(8)} for seed in range(5)}
    (row,) = compare_arms({"a": ones, "b": noughts}, [("a", "b")], seed=1)
    assert row.p_value == pytest.approx(2 * 0.5**8)
    assert row.verdict == "better"


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("tasks", [2, 4, 6])
def test_rounding_is_no_evidence(seeds, tasks):
    """Two thirds less one third in every cell: sums differ in their last bit, and that is all."""
    high = {seed: {f"t{t}": 2 / 3 for t in range(tasks)} for seed in range(seeds)}
    low = {seed: {f"t{t}": 1 / 3 for t in range(tasks)} for seed in range(seeds)}
    (row,) = compare_arms({"a": high, "b": low}, [("a", "b")], seed=1)
    assert row.p_value is not None
    assert row.p_value >= 2 * 0.5**tasks
    assert not row.decided
    assert row.effect.lower < 0 < row.effect.estimate < row.effect.upper
    assert row.advice is not None
    assert (row.advice.detectable, row.advice.seeds_needed) == (0.0, None)


@given(
    st.integers(1, 40),
    st.floats(0.01, 1).map(lambda d: round(d, 3)),
    st.sampled_from([0.05, 0.01]),
)
@settings(deadline=None, max_examples=40)
def test_where_all_pairs_agree_nothing_is_decided_against_the_interval(tasks, effect, alpha):
    arm = {seed: {f"t{t:02}": effect for t in range(tasks)} for seed in range(5)}
    other = {seed: dict.fromkeys(arm[0], 0.0) for seed in range(5)}
    (row,) = compare_arms({"a": arm, "b": other}, [("a", "b")], seed=1, alpha=alpha)
    assert row.effect.lower > 0 or not row.decided


def test_few_tasks_decide_nothing_however_alike_they_are():
    # One cell of 15 differs: Student's t would say p = 0.005 on two degrees of freedom, where
    # three tasks on one side have a chance of a quarter.
    ones = {seed: {f"t{t}": float((seed, t) != (0, 0)) for t in range(3)} for seed in range(5)}
    noughts = {seed: dict.fromkeys(ones[0], 0.0) for seed in range(5)}
    (row,) = compare_arms({"a": ones, "b": noughts}, [("a", "b")], seed=1)
    assert (row.p_value, row.decided) == (0.25, False)
    assert row.advice is not None
    assert (row.advice.seeds_needed, row.advice.tasks_needed) == (None, 6)


def test_one_task_claims_nothing_and_says_so():
    arms = {"a": _arm(0.9, 5, tasks=1), "b": _arm(0.1, 5, tasks=1)}
    (row,) = compare_arms(arms, [("a", "b")], seed=1)
    assert (row.decided, row.verdict) == (None, ONE_TASK)


def test_advice_is_for_the_next_step_of_holms_procedure():
    """Five comparisons with p about 0.02, so none decided: the present numbers would not do."""
    noise_ST = np.random.default_rng(3).normal(size=(20, 40))
    noise_ST -= noise_ST.mean(axis=0) + noise_ST.mean(axis=1, keepdims=True) - noise_ST.mean()
    error = components(noise_ST).standard_error
    shifted = (noise_ST + 2.4 * error).tolist()
    arm = {s: {f"t{t:02}": v for t, v in enumerate(row)} for s, row in enumerate(shifted)}
    arms = dict.fromkeys("abcde", arm) | {"base": {s: dict.fromkeys(arm[0], 0.0) for s in arm}}
    alone = compare_arms(arms, [("a", "base")], seed=1)
    assert [row.verdict for row in alone] == ["better"]
    for row in compare_arms(arms, [(name, "base") for name in "abcde"], seed=1):
        assert row.verdict == "undecided"
        assert row.advice is not None
        assert row.advice.seeds_needed is not None
        assert row.advice.seeds_needed > 20


def test_null_comparisons_are_decided_no_more_often_than_alpha():
    """200 experiments of five seeds in which both arms are one: at most 5 % plus two errors."""
    rng = np.random.default_rng(8)

    def null() -> bool:
        shared = rng.normal(0, 0.3, (1, 32))
        cells = [shared + rng.normal(0, 0.1, (5, 1)) + rng.normal(0, 1, (5, 32)) for _ in "ab"]
        arms = {
            name: {s: {str(t): v for t, v in enumerate(row)} for s, row in enumerate(values)}
            for name, values in zip("ab", cells, strict=True)
        }
        return bool(compare_arms(arms, [("a", "b")], seed=1)[0].decided)

    assert np.mean([null() for _ in range(200)]) <= 0.05 + 2 * 0.016


def test_more_looks_ask_for_more_evidence():
    arms = {"a": _arm(0.5, 5, stream=3), "b": _arm(0.42, 5, stream=3)}
    once, often = (compare_arms(arms, [("a", "b")], seed=1, looks=n)[0] for n in (1, 8))
    assert once.p_value == often.p_value
    assert often.effect.upper - often.effect.lower > once.effect.upper - once.effect.lower
    assert once.decided
    assert not often.decided


def test_advice_names_what_would_decide():
    arms = {"a": _arm(0.45, 5, 24, stream=1), "b": _arm(0.35, 5, 24, stream=2)}
    (row,) = compare_arms(arms, [("a", "b")], seed=1)
    assert row.advice is not None
    assert row.advice.detectable > abs(row.effect.estimate)
    needed = row.advice.tasks_needed
    assert needed is not None
    assert needed > 24


def test_pooled_rates_and_means_of_seeds_differ_where_denominators_do():
    # Seed 1: one of one; seed 2: none of three. Pooled 1/4, mean of seeds 1/2.
    outcomes = {1: {"a": 1.0, "b": None}, 2: {"a": 0.0, "b": 0.0, "c": 0.0}}
    assert pooled_and_mean_rate(outcomes) == (0.25, 0.5)
    assert pooled_and_mean_rate({1: {"a": None}}) == (None, None)


def test_arms_over_other_tasks_are_refused():
    with pytest.raises(ValueError, match="same tasks under the same seeds"):
        paired_differences({1: {"a": 1.0}}, {1: {"b": 1.0}})
    with pytest.raises(ValueError, match="same tasks under the same seeds"):
        paired_differences({1: {"a": 1.0}}, {2: {"a": 1.0}})


def test_no_look_at_all_is_refused():
    with pytest.raises(ValueError, match="looks"):
        compare_arms({}, [], seed=1, looks=0)


def test_a_cell_without_a_number_is_refused():
    arm = {1: {"a": float("nan"), "b": 0.0}, 2: {"a": 0.0, "b": 1.0}}
    with pytest.raises(ValueError, match="finite value in every cell"):
        compare_arms({"a": arm, "b": arm}, [("a", "b")], seed=1)
