import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.answer_checks import (
    answer_start,
    extract_answer,
    judge_answer,
    normalise,
    read_number,
)

# ---------------------------------------------------------------- golden


@pytest.mark.parametrize(
    ("text", "marker", "answer"),
    [
        ("3+4=7\n#### 7", "####", "7"),
        ("#### 1\nno, #### 2\nso it is", "####", "2"),
        ("####42", "####", "42"),
        ("#### \n42", "####", None),
        ("forty two", "####", None),
        ("  forty\ntwo ", None, "forty\ntwo"),
        ("", None, None),
        ("The answer is 5. ", "The answer is", "5."),
    ],
)
def test_the_answer_follows_the_last_marker_on_its_line(text, marker, answer):
    assert extract_answer(text, marker) == answer


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1,234,567", 1234567.0, None),
        ("-3", -3.0, None),
        ("$18", 18.0, "$"),
        ("-$1,000.50", -1000.5, "$"),
        ("50%", 50.0, "%"),
        ("5 km", 5.0, "km"),
        ("5 Kilometers.", 5.0, "km"),
        ("42.", 42.0, None),
        (".5", 0.5, None),
        ("1.5e3", 1500.0, None),
        (" 7 ", 7.0, None),
    ],
)
def test_numbers_are_read_with_commas_signs_and_units(text, value, unit):
    assert read_number(text) == (value, unit)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1,2",
        "12,34",
        "1 2",
        "nan",
        "inf",
        "1e999",
        "5 apples",
        "٣",
        "--1",
        "1" * 65,
        "$",
        ".",
    ],
)
def test_what_is_no_number_is_none(text):
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("answer", "expected", "check", "category"),
    [
        (" a ", "a", "exact", "solved"),
        ("A", "a", "exact", "wrong_answer"),
        ("A  b.", "a b", "normalised", "solved"),
        ("ﬁve", "Five", "normalised", "solved"),
        ("five", "six", "normalised", "wrong_answer"),
        ("1,000", "1000", "numeric", "solved"),
        ("1000.0", "1,000", "numeric", "solved"),
        ("$18", "18", "numeric", "solved"),
        ("18 km", "18 mi", "numeric", "wrong_answer"),
        ("10001", "10000", "numeric", "wrong_answer"),
        ("1000001", "1000000", "numeric", "wrong_answer"),
        ("eighteen", "18", "numeric", "malformed_answer"),
        ("18", "eighteen", "numeric", "wrong_answer"),
    ],
)
def test_verdicts(answer, expected, check, category):
    assert judge_answer(answer, expected, check) == category


# ---------------------------------------------------------------- properties


@given(st.text(), st.text(), st.sampled_from(["exact", "normalised", "numeric"]))
def test_every_string_has_a_verdict(answer, expected, check):
    assert judge_answer(answer, expected, check)
    assert extract_answer(answer, "####") is None or answer_start(answer, "####") is not None


@given(st.text())
def test_a_text_is_itself_but_for_its_spelling(text):
    assert judge_answer(text, text, "exact") == "solved"
    assert judge_answer(normalise(text), text, "exact") in ("solved", "wrong_answer")
    assert judge_answer(text.upper(), text.upper(), "normalised") == "solved"


@given(st.integers(-(10**12), 10**12))
def test_an_integer_is_right_however_it_is_grouped_and_no_other_is(number):
    assert judge_answer(f"{number:,}", str(number), "numeric") == "solved"
    assert judge_answer(f"{number}", f"{number:,}.00", "numeric") == "solved"
    near = abs(number) < 10**8
    assert judge_answer(str(number + 1), str(number), "numeric") == "wrong_answer" or not near


def test_a_hostile_string_is_judged_at_once():
    for text in ("," * 10**6, "1," * 10**6, "#" * 10**6, "9" * 10**6, "-" * 10**6):
        assert judge_answer(text, "1", "numeric") == "malformed_answer"
        extract_answer(text, "####")
