import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.student_t import t_quantile, t_two_sided_p


@pytest.mark.parametrize(
    ("confidence", "degrees", "expected"),
    [  # R 4.3: qt(0.5 + confidence / 2, degrees)
        (0.95, 1, 12.7062047364),
        (0.95, 4, 2.7764451052),
        (0.95, 30, 2.0422724563),
        (0.99, 10, 3.1692726726),
        (0.9, 2.5, 2.5582186141),
    ],
)
def test_quantiles_equal_the_tables(confidence, degrees, expected):
    assert t_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-9)


def test_p_values_equal_closed_forms():
    # One degree is Cauchy: P(|T| > 1) = 1/2. Two degrees: P(|T| > t) = 1 − t/√(2 + t²).
    assert t_two_sided_p(1.0, 1) == pytest.approx(0.5, rel=1e-12)
    assert t_two_sided_p(-3.0, 2) == pytest.approx(1 - 3 / math.sqrt(11), rel=1e-12)
    assert t_two_sided_p(0.0, 7) == 1.0
    assert t_two_sided_p(math.inf, 7) == 0.0


def test_many_degrees_are_normal():
    assert t_two_sided_p(1.959963985, 1e7) == pytest.approx(0.05, rel=1e-6)


@given(st.floats(0.05, 0.999), st.floats(0.6, 1e4))
def test_quantile_inverts_the_p_value(confidence, degrees):
    assert t_two_sided_p(t_quantile(confidence, degrees), degrees) == pytest.approx(
        1 - confidence, rel=1e-7
    )


@pytest.mark.parametrize("degrees", [0, -1, math.nan])
def test_no_degrees_of_freedom_are_refused(degrees):
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_two_sided_p(1.0, degrees)


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_confidence_out_of_range_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        t_quantile(confidence, 3)
