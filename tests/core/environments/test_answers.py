"""Golden rows: vectors.md 4 (normalize_number v1)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.answers import normalize_number, normalize_value, read_answer


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("4.0", 4.0),
        ("1,234", 1234.0),
        ("1_000", 1000.0),
        ("4 miles", 4.0),
        ("miles 4", None),
        ("nan", None),
        ("inf", None),
        ("1e3", 1000.0),
        ("", None),
        ("-3", -3.0),
        ("+3", 3.0),
        ("4;", None),
        ("(4)", None),
    ],
)
def test_the_first_version_reads_the_first_word(answer, value):
    assert normalize_number(answer) == value


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (" 14. ", (14.0, None)),
        ("1.4e1", (14.0, None)),
        (".5 km", (0.5, "km")),
        ("14 Meters", (14.0, "m")),
        ("14m", (14.0, "m")),
        ("14 metres", None),
        ("14 m m", None),
        ("1,4", None),
        ("1_4", None),
        ("$14", None),
        ("1e999", None),
        ("\u0661\u0664", None),  # digits of another script
    ],
)
def test_the_second_version_reads_a_number_and_a_unit(answer, read):
    assert read_answer(answer) == read


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("707.0", "707"),
        (" 1,707 ", "1707"),
        ("0.12345", "0.1235"),
        ('"Lyon"', "lyon"),
        ("1e3", "1000"),
        ("nan", None),
        ("-inf", None),
        ("", ""),
    ],
)
def test_a_database_value_has_one_spelling(answer, value):
    assert normalize_value(answer) == value


@given(st.text() | st.from_regex(r"[+-]?[0-9.,_eE]+ ?[a-z]*", fullmatch=True))
def test_reading_is_total_and_finite(answer):
    first, second = normalize_number(answer), read_answer(answer)
    assert isinstance(normalize_value(answer), str | None)
    assert first is None or math.isfinite(first)
    assert second is None or math.isfinite(second[0])
