"""Golden rows: vectors.md 4 (values and refusals; the sentences of errors are our own)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.tools import FACTORS, UNITS, convert, format_number, parse_number, safe_eval
from core.errors import ToolEnvironmentError

VALUES = [
    ("(17 * 10)", 170.0, "170"),
    ("2*(3+4)", 14.0, "14"),
    ("7/2", 3.5, "3.5"),
    ("7//2", 3.0, "3"),
    ("-7//2", -4.0, "-4"),
    ("7%3", 1.0, "1"),
    ("-7%3", 2.0, "2"),
    ("1e3+1", 1001.0, "1001"),
    ("1/3", 0.3333333333333333, "0.3333"),
    ("1000**2", 1000000.0, "1000000"),
    ("1_000", 1000.0, "1000"),
    ("1e12", 1000000000000.0, "1000000000000"),
    ("3.5", 3.5, "3.5"),
    ("2**0.5", 1.4142135623730951, "1.4142"),
    ("2**-1", 0.5, "0.5"),
]

REFUSED = [
    "2**9", "1001**2", "1/0", "5%0", "x+1", "__import__('os')", "1 if 1 else 2", "[1]", "'a'",
    "True", "1,2", "1e12+1", "1e400", "1" * 201, "1111111111111", "(-8)**(1/3)", "1j",
]  # fmt: skip


@pytest.mark.parametrize(("expression", "value", "text"), VALUES)
def test_arithmetic_has_its_value(expression, value, text):
    assert safe_eval(expression) == value
    assert format_number(safe_eval(expression)) == text


@pytest.mark.parametrize("expression", REFUSED)
def test_everything_else_is_refused(expression):
    with pytest.raises(ToolEnvironmentError):
        safe_eval(expression)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.0, "4"),
        (2.485484, "2.4855"),
        (-0.0, "0"),
        (1e-10, "0"),
        (1.00005, "1.0001"),
        (123456789.0, "123456789"),
        (0.30000000000000004, "0.3"),
        (-14.0, "-14"),
        (446.1942, "446.1942"),
        (1000000000000.0, "1000000000000"),
        (-0.00001, "0"),
    ],
)
def test_numbers_are_formatted(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "source", "target", "text"),
    [
        (5, "km", "mi", "3.1069"),
        (136, "m", "ft", "446.1942"),
        (100, "c", "f", "212"),
        (212, "f", "c", "100"),
        (5, "KM", "mi", "3.1069"),
        (7, "oz", "oz", "7"),
    ],
)
def test_units_convert(value, source, target, text):
    assert format_number(convert(value, source, target)) == text


def test_nesting_is_bounded_at_twelve_levels():
    assert safe_eval("-" * 12 + "1") == 1.0
    with pytest.raises(ToolEnvironmentError, match="nests too deeply"):
        safe_eval("-" * 13 + "1")


@given(st.text(alphabet="0123456789.eE_xjoXJO()+-*/% \n\t", max_size=210) | st.text())
def test_an_expression_is_a_bounded_number_or_a_refusal(expression):
    try:
        value = safe_eval(expression)
    except ToolEnvironmentError:
        return
    assert abs(value) <= 1e12
    assert math.isfinite(float(format_number(value)))


@given(st.floats(-1e6, 1e6), st.sampled_from(sorted(FACTORS)))
def test_there_and_back_is_the_same_quantity(value, pair):
    source, target = pair
    back = convert(convert(value, source, target), target, source)
    assert back == pytest.approx(value, rel=1e-5, abs=1e-9)


def test_units_are_the_twelve_of_the_factors_and_degrees():
    assert UNITS == ("c", "f", "ft", "g", "gal", "kg", "km", "l", "lb", "m", "mi", "oz")


@given(st.text())
def test_a_parsed_number_is_finite(text):
    value = parse_number(text)
    assert value is None or math.isfinite(value)


@pytest.mark.parametrize(
    ("source", "target"), [("km", "kg"), ("km", "parsec"), ("x", "x"), ("", "")]
)
def test_other_conversions_are_refused(source, target):
    with pytest.raises(ToolEnvironmentError, match="does not convert"):
        convert(1.0, source, target)


@pytest.mark.parametrize("value", [1e13, -1e13, 10**400, math.inf, math.nan])
def test_huge_quantities_are_refused(value):
    with pytest.raises(ToolEnvironmentError, match="too large"):
        convert(value, "km", "mi")
