"""How the calculator's tasks are drawn; changing one draw changes every task after it."""

from random import Random
from typing import Any

from core.environments.base import Difficulty
from core.environments.tools import FACTORS, convert, format_number, safe_eval

PAIRS = (*sorted(FACTORS), ("c", "f"), ("f", "c"))
"""Conversions that tasks ask for, in the order in which they are drawn."""

CHAINED_PAIRS = (("km", "mi"), ("kg", "lb"))


def draw_task(rng: Random, difficulty: Difficulty) -> tuple[str, str, dict[str, Any]]:
    """Return prompt, answer and metadata of a task.

    Args:
        rng: The task's own generator; how many numbers are drawn is part of a task's identity.
        difficulty: easy: two terms. medium: three terms or a conversion. hard: four terms, or the
            conversion of a two-term expression.
    """
    # The kind is drawn for every difficulty, so that streams of one index stay aligned.
    is_arithmetic = rng.random() < 0.5
    if difficulty == "easy":
        return _arithmetic(rng, 2)
    if is_arithmetic:
        return _arithmetic(rng, 3 if difficulty == "medium" else 4)
    return _conversion(rng) if difficulty == "medium" else _chained(rng)


def _arithmetic(rng: Random, terms: int) -> tuple[str, str, dict[str, Any]]:
    expression = _expression(rng, terms)
    answer = format_number(safe_eval(expression))
    return f"Compute {expression}.", answer, {"kind": "arithmetic", "expression": expression}


def _expression(rng: Random, terms: int) -> str:
    expression = str(rng.randrange(1, 20))
    for index in range(terms - 1):
        expression = f"{expression} {rng.choice('+-*')} {rng.randrange(1, 13)}"
        if index == 0 and rng.random() < 0.5:
            expression = f"({expression})"
    return expression


def _conversion(rng: Random) -> tuple[str, str, dict[str, Any]]:
    source, target = rng.choice(PAIRS)
    value = rng.randrange(2, 500)
    facts = {"kind": "conversion", "value": value, "from_unit": source, "to_unit": target}
    answer = format_number(convert(float(value), source, target))
    return f"Convert {value} {source} to {target}.", answer, facts


def _chained(rng: Random) -> tuple[str, str, dict[str, Any]]:
    expression = _expression(rng, 2)
    source, target = CHAINED_PAIRS[0] if rng.random() < 0.5 else CHAINED_PAIRS[1]
    value = safe_eval(expression)
    facts = {
        "kind": "chained",
        "expression": expression,
        "intermediate": format_number(value),
        "from_unit": source,
        "to_unit": target,
    }
    answer = format_number(convert(value, source, target))
    return f"Convert {expression} {source} to {target}.", answer, facts
