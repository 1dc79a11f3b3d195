"""Bounds: vectors.md 6, last paragraph; each is tested at the limit and one past it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.strict_json import parse_strict_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' {"a": [1, 2.5, "x", true, null]} ', {"a": [1, 2.5, "x", True, None]}),
        (f'"{"x" * 4094}"', "x" * 4094),
        ("[" * 32 + "]" * 32, json.loads("[" * 32 + "]" * 32)),
        (json.dumps([0] * 256), [0] * 256),
        ("9" * 128, 10**128 - 1),
        ("-" + "9" * 128, 1 - 10**128),
        ("1." + "0" * 126, 1.0),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["', "[" * 34),
    ],
)
def test_values_within_the_bounds_are_read(text, value):
    assert parse_strict_json(text) == value


@given(st.text())
def test_every_text_is_a_value_or_a_value_error(text):
    try:
        value = parse_strict_json(text)
    except ValueError:
        return
    assert value == json.loads(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'"{"x" * 4095}"', "4097 characters"),
        ("[" * 33 + "]" * 33, "nest more than 32"),
        (json.dumps([0] * 257), "more than 256 members"),
        (json.dumps({str(n): 0 for n in range(257)}), "more than 256 members"),
        ("9" * 129, "more than 128 digits"),
        ("1." + "0" * 127, "more than 128 characters"),
        ("1e999", "not finite"),
        ("NaN", "not a finite number"),
        ("-Infinity", "not a finite number"),
        ('{"a": {"b": 1, "b": 2}}', "key 'b' appears twice"),
        ('"\\ud800"', "lone surrogate"),
        ('{"\\udfff": 1}', "lone surrogate"),
        ("", "Expecting value"),
        ("{'a': 1}", "property name"),
        ("1 2", "Extra data"),
    ],
)
def test_each_bound_is_refused_by_name(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_strict_json(text)
