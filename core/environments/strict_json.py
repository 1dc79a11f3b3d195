"""JSON as a model may write it: bounded in every direction, and never ambiguous."""

import json
import math
import re
from typing import Any

MAX_CHARACTERS = 4096
MAX_DEPTH = 32
MAX_MEMBERS = 256
MAX_INTEGER_DIGITS = 128
MAX_FLOAT_CHARACTERS = 128

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def parse_strict_json(text: str) -> Any:
    """Return the value of ``text``, or refuse it.

    Surrounding white space does not count. Containers nest at most 32 deep with at most 256 members
    each; integers have at most 128 digits and floats 128 characters; no NaN or infinity (also not
    by overflow), no repeated key, no lone surrogate.

    Raises:
        ValueError: Text is no such value; the message says which bound it breaks.
    """
    payload = text.strip()
    if len(payload) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(payload)} characters, more than {MAX_CHARACTERS}")
    _check_depth(payload)
    try:
        value = json.loads(
            payload,
            object_pairs_hook=_unique_members,
            parse_int=_bounded_int,
            parse_float=_bounded_float,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from error
    _check_leaves(value)
    return value


def _check_depth(payload: str) -> None:
    # Before json.loads, whose own recursion a model could exhaust.
    depth = 0
    for character in _STRING.sub("", payload):
        depth += (character in "[{") - (character in "]}")
        if depth > MAX_DEPTH:
            raise ValueError(f"containers nest more than {MAX_DEPTH} deep")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key {repeated[:40]!r} appears twice")
    return members


def _bounded_int(literal: str) -> int:
    if len(literal.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise ValueError(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
    return int(literal)


def _bounded_float(literal: str) -> float:
    if len(literal) > MAX_FLOAT_CHARACTERS:
        raise ValueError(f"a number has more than {MAX_FLOAT_CHARACTERS} characters")
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"number {literal} is not finite")
    return value


def _no_constant(literal: str) -> None:
    raise ValueError(f"{literal} is not a finite number")


def _check_leaves(value: Any) -> None:
    # Recursion is safe: depth is bounded by now.
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, (dict, list)):
        if len(value) > MAX_MEMBERS:
            raise ValueError(f"a container has more than {MAX_MEMBERS} members")
        for member in value:
            _check_leaves(member)
        if isinstance(value, dict):
            for member in value.values():
                _check_leaves(member)


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("a string holds a lone surrogate") from error
