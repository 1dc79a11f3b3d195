"""Free-text answers of single-turn prompts: where one stands, and whether it is the right one.

Total on every string, and linear in its length.
"""

import re
import unicodedata
from typing import Literal

from core.environments.answers import UNIT_NAMES
from core.environments.base import FailureCategory
from core.environments.tools import parse_number

AnswerCheck = Literal["exact", "normalised", "numeric"]
"""``exact``: equal up to white space around the text; ``normalised``: also up to case, Unicode
compatibility forms, runs of white space and one closing full stop; ``numeric``: equal as numbers.
"""

RELATIVE_TOLERANCE = 1e-9
"""Of the expected number's magnitude, or of 1 where that is smaller: equal but for rounding."""

MAX_NUMBER_CHARACTERS = 64

_UNIT_OF_WORD = {word: unit for unit, words in UNIT_NAMES.items() for word in words} | {"%": "%"}
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)\s?(?P<currency>[$€£]?)\s?"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<exponent>(?:[eE][+-]?[0-9]+)?)\s?(?P<unit>[A-Za-z]+|%)?\.?"
)


def answer_start(text: str, marker: str | None) -> int | None:
    """Return where the answer begins: after the last ``marker``, at 0 where none is asked for.

    Args:
        text: A response or a reference solution.
        marker: Text before the answer, e.g. ``####``; None: the whole text is the answer.

    Returns:
        Index of a character; None where the text lacks the marker.
    """
    if marker is None:
        return 0
    found = text.rfind(marker)
    return None if found < 0 else found + len(marker)


def extract_answer(text: str, marker: str | None) -> str | None:
    """Return the answer in a text without white space around it, or None where there is none.

    With a marker the answer ends with its line; without one it is the whole text.
    """
    start = answer_start(text, marker)
    if start is None:
        return None
    answer = text[start:] if marker is None else text[start:].lstrip(" \t").partition("\n")[0]
    return answer.strip() or None


def read_number(text: str) -> tuple[float, str | None] | None:
    """Return the number that a text is, and its unit or currency sign, or None.

    Commas may group thousands; a currency sign may precede, a known unit, ``%`` and one full stop
    may follow. Texts of more than 64 characters are no numbers here.
    """
    stripped = text.strip()
    if len(stripped) > MAX_NUMBER_CHARACTERS:
        return None
    match = _NUMBER.fullmatch(stripped)
    if match is None:
        return None
    word = match["unit"]
    if word is not None and word.lower() not in _UNIT_OF_WORD:
        return None
    value = parse_number(match["sign"] + match["digits"].replace(",", "") + match["exponent"])
    unit = match["currency"] or (_UNIT_OF_WORD[word.lower()] if word is not None else None)
    return None if value is None else (value, unit)


def normalise(text: str) -> str:
    """Return a text in one spelling: NFKC, case folded, single spaces, no closing full stop."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).removesuffix(".").rstrip()


def judge_answer(answer: str, expected: str, check: AnswerCheck) -> FailureCategory:
    """Return whether an answer is the expected one.

    Args:
        answer: What was extracted from a response.
        expected: The reference; with ``numeric`` a number that ``read_number`` reads.
        check: What counts as equal.
    """
    if check == "numeric":
        return _judge_number(answer, expected)
    if check == "normalised":
        same = normalise(answer) == normalise(expected)
    else:
        same = answer.strip() == expected.strip()
    return FailureCategory.SOLVED if same else FailureCategory.WRONG_ANSWER


def _judge_number(answer: str, expected: str) -> FailureCategory:
    given, wanted = read_number(answer), read_number(expected)
    if given is None:
        return FailureCategory.MALFORMED_ANSWER
    if wanted is None:
        return FailureCategory.WRONG_ANSWER
    close = abs(given[0] - wanted[0]) <= RELATIVE_TOLERANCE * max(1.0, abs(wanted[0]))
    same_unit = None in (given[1], wanted[1]) or given[1] == wanted[1]
    return FailureCategory.SOLVED if close and same_unit else FailureCategory.WRONG_ANSWER
