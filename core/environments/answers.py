"""Final answers as the verifiers read them. Total on every string."""

import math
import re

from core.environments.tools import parse_number

UNIT_NAMES: dict[str, tuple[str, ...]] = {
    "km": ("km", "kilometer", "kilometers"),
    "mi": ("mi", "mile", "miles"),
    "m": ("m", "meter", "meters"),
    "ft": ("ft", "foot", "feet"),
    "kg": ("kg", "kilogram", "kilograms"),
    "lb": ("lb", "pound", "pounds"),
    "g": ("g", "gram", "grams"),
    "oz": ("oz", "ounce", "ounces"),
    "l": ("l", "liter", "liters"),
    "gal": ("gal", "gallon", "gallons"),
    "c": ("c", "celsius"),
    "f": ("f", "fahrenheit"),
}
"""Words that an answer may name a unit by (verifier v2)."""

_UNIT_OF_WORD = {word: unit for unit, words in UNIT_NAMES.items() for word in words}
_ANSWER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:\s*([A-Za-z]+))?")


def normalize_number(answer: str) -> float | None:
    """Return the number at the start of an answer as verifier v1 reads it, or None.

    Only the first word counts, without ``,`` and ``_``; units and remarks after it are ignored.
    """
    words = answer.split()
    return parse_number(words[0].replace(",", "").replace("_", "")) if words else None


def read_answer(answer: str) -> tuple[float, str | None] | None:
    """Return number and unit of an answer as verifier v2 reads it, or None.

    The whole text must be a number, optionally followed by a known unit.
    """
    match = _ANSWER.fullmatch(answer.strip())
    if match is None:
        return None
    value, word = parse_number(match[1]), match[2]
    if value is None or (word is not None and word.lower() not in _UNIT_OF_WORD):
        return None
    return value, None if word is None else _UNIT_OF_WORD[word.lower()]


def normalize_value(answer: str) -> str | None:
    """Return a database value in one spelling, or None for what no database returns (NaN, inf).

    Numbers lose their commas and get no or four decimals; texts lose the double quotes around them
    and their case.
    """
    text = answer.strip().strip('"')
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return text.lower()
    if not math.isfinite(number):
        return None
    return str(int(number)) if number.is_integer() else f"{number:.4f}"
