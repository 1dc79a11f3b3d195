import numpy as np
import pytest

from core.evaluation.crossed import components, outcome_matrix


def test_components_equal_the_analysis_of_variance_by_hand():
    # Rows (2, 4, 6), (4, 6, 11): grand mean 5.5, row means 4 and 7, column means 3, 5, 8.5.
    # MS_seed = 3·(1.5² + 1.5²)/1 = 13.5; MS_task = 2·(2.5² + 0.5² + 3²)/2 = 15.5;
    # residuals ±0.5, ±0.5, ∓1: MS_rest = 2·(0.25 + 0.25 + 1)/2 = 1.5.
    found = components(np.array([[2.0, 4.0, 6.0], [4.0, 6.0, 11.0]]))
    assert found.mean == 5.5
    assert found.between_seeds == pytest.approx((13.5 - 1.5) / 3)
    assert found.between_tasks == pytest.approx((15.5 - 1.5) / 2)
    assert found.rest == pytest.approx(1.5)
    assert found.standard_error**2 == pytest.approx((13.5 + 15.5 - 1.5) / 6)
    spread = 13.5**2 / 1 + 15.5**2 / 2 + 1.5**2 / 2
    assert found.degrees == pytest.approx((13.5 + 15.5 - 1.5) ** 2 / spread)


def test_standard_error_equals_the_spread_of_many_experiments():
    rng = np.random.default_rng(3)
    experiments = [
        rng.normal(0, 0.2, (6, 1)) + rng.normal(0, 0.3, (1, 20)) + rng.normal(0, 0.5, (6, 20))
        for _ in range(2_000)
    ]
    truth = np.std([values.mean() for values in experiments])
    found = np.mean([components(values).standard_error ** 2 for values in experiments])
    assert np.sqrt(found) == pytest.approx(truth, rel=0.05)


def test_more_seeds_do_not_lower_what_the_tasks_add():
    found = components(np.random.default_rng(1).normal(0, 1, (5, 1)) + np.arange(10.0))
    assert found.standard_error_of(10**9, 10) == pytest.approx(
        np.sqrt(found.between_tasks / 10), rel=1e-6
    )


def test_values_are_ordered_by_seed_and_task():
    matrix = outcome_matrix({2: {"b": 4.0, "a": 3.0}, 1: {"a": 1.0, "b": 2.0}})
    assert matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_variance_needs_two_of_each(shape):
    with pytest.raises(ValueError, match="two of each"):
        components(np.zeros(shape))


@pytest.mark.parametrize("outcomes", [{}, {1: {}}, {1: {"a": 1.0}, 2: {"b": 1.0}}])
def test_designs_that_are_not_crossed_are_refused(outcomes):
    with pytest.raises(ValueError, match="same non-empty tasks"):
        outcome_matrix(outcomes)
