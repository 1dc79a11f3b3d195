import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.arm_comparison import Paired, compare_paired, pooled_and_mean_rate
from core.evaluation.ratios import pooled_values, seed_mean_values, sparse_differences
from core.evaluation.statistics import hierarchical_bootstrap


def _mean(outcomes):
    return np.mean([list(tasks.values()) for tasks in outcomes.values()])


def test_a_published_recovery_difference_is_found_again():
    # 116 pairs with an error in both arms: 96 ties, 18 losses, 2 wins; −13.79 points
    # [−20.69, −6.90] by pairs.
    values = [*[0.0] * 96, *[-1.0] * 18, *[1.0] * 2, *[None] * 268]
    order = np.random.default_rng(5).permutation(384)
    sparse = {s: {f"t{t}": values[order[128 * s + t]] for t in range(128)} for s in range(3)}
    pooled = pooled_values(sparse)
    known = [value for value in values if value is not None]
    (row,) = compare_paired([Paired("fresh", "frozen", pooled, known, units=116)], seed=1)
    assert row.effect.estimate == pytest.approx(-0.13793103448275862, abs=1e-15)
    assert (row.wins, row.losses, row.ties) == (2, 18, 96)
    assert row.effect.lower == pytest.approx(-0.2069, abs=0.02)
    assert row.effect.upper == pytest.approx(-0.0690, abs=0.02)
    assert row.verdict == "worse, for these seeds"


@given(
    st.lists(
        st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_linearised_values_have_the_rates_as_means(rows):
    sparse = {s: {f"t{t}": value for t, value in enumerate(row)} for s, row in enumerate(rows)}
    pooled, by_seed = pooled_and_mean_rate(sparse)
    for values, rate in ((pooled_values(sparse), pooled), (seed_mean_values(sparse), by_seed)):
        if rate is None:
            assert values is None
        else:
            assert _mean(values) == pytest.approx(rate, abs=1e-12)


def test_where_every_cell_counts_nothing_changes():
    full = {1: {"a": 1.0, "b": 0.0}, 2: {"a": 0.0, "b": 0.0}}
    assert pooled_values(full) == full == seed_mean_values(full)


def test_the_interval_of_a_pooled_rate_covers_it():
    """200 experiments on 5 seeds × 40 tasks, a third of the cells counting: 90 to 99 % cover."""
    rng = np.random.default_rng(3)
    covered = 0
    for trial in range(200):
        rate_T = rng.beta(2, 2, 40)
        cells = {
            s: {
                str(t): float(rng.random() < rate_T[t]) if rng.random() < 1 / 3 else None
                for t in range(40)
            }
            for s in range(5)
        }
        interval = hierarchical_bootstrap(pooled_values(cells), seed=trial, resamples=400)
        covered += interval.lower <= 0.5 <= interval.upper
    assert 0.90 <= covered / 200 <= 0.99


def test_differences_are_of_cells_that_count_in_both():
    assert sparse_differences({1: {"a": 1.0, "b": None}}, {1: {"a": 0.0, "b": 1.0}}) == {
        1: {"a": 1.0, "b": None}
    }
    with pytest.raises(ValueError, match="same tasks under the same seeds"):
        sparse_differences({1: {"a": 1.0}}, {1: {"b": 1.0}})
