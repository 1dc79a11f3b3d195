import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.training.schedule import learning_rate

STEPS = (0, 1, 2, 3, 4, 5, 7, 8, 20)
GOLDEN = {
    ("constant", 0, 8): [1e-4] * 9,
    ("linear", 0, 8): [1e-4, 8.75e-5, 7.5e-5, 6.25e-5, 5e-5, 3.75e-5, 1.25e-5, 0.0, 0.0],
    ("linear", 2, 8): [
        5e-5, 1e-4, 1e-4, 8.3333333e-5, 6.6666667e-5, 5e-5, 1.6666667e-5, 0.0, 0.0,
    ],
    ("linear", 4, 64): [
        2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4, 9.8333333e-5, 9.5e-5, 9.3333333e-5, 7.3333333e-5,
    ],
    ("cosine", 0, 8): [
        1e-4, 9.6193977e-5, 8.5355339e-5, 6.9134172e-5, 5e-5, 3.0865828e-5, 3.8060234e-6, 0.0, 0.0,
    ],
    ("cosine", 2, 8): [5e-5, 1e-4, 1e-4, 9.330127e-5, 7.5e-5, 5e-5, 6.6987298e-6, 0.0, 0.0],
    ("cosine", 4, 64): [
        2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4, 9.9931477e-5, 9.9384417e-5, 9.890738e-5, 8.345653e-5,
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "warmup", "total"), GOLDEN)
def test_the_schedules_match_the_table(kind, warmup, total):
    rates = [learning_rate(step, 1e-4, warmup, total, kind) for step in STEPS]
    assert rates == pytest.approx(GOLDEN[kind, warmup, total], rel=1e-7, abs=1e-15)


@given(
    st.integers(0, 200),
    st.integers(0, 50),
    st.integers(1, 100),
    st.sampled_from(["constant", "linear", "cosine"]),
)
def test_the_rate_stays_between_zero_and_its_base(step, warmup, total, kind):
    assert 0.0 <= learning_rate(step, 0.01, warmup, total, kind) <= 0.01


@given(st.integers(0, 30), st.integers(31, 100), st.sampled_from(["linear", "cosine"]))
def test_the_rate_never_rises_after_the_warm_up(warmup, total, kind):
    rates = [learning_rate(step, 1.0, warmup, total, kind) for step in range(warmup, total + 2)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates))
    assert rates[0] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="unknown schedule 'step'"):
        learning_rate(0, 1.0, 0, 1, "step")  # type: ignore[arg-type]


def test_a_negative_step_is_refused():
    with pytest.raises(ValueError, match="at least 0, got -1"):
        learning_rate(-1, 1.0, 0, 1, "constant")
