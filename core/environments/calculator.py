"""Arithmetic and unit conversion with two tools: the world in which the toy pair learns."""

from collections.abc import Mapping
from random import Random
from typing import Any

from core.environments.answers import normalize_number, read_answer
from core.environments.base import (
    Difficulty,
    FailureCategory,
    OracleAction,
    OracleFinal,
    Split,
    Task,
    ToolCall,
)
from core.environments.calculator_tasks import draw_task
from core.environments.registry import register
from core.environments.tool_world import Tool, ToolWorld, text_argument
from core.environments.tools import UNITS, convert, format_number, parse_number, safe_eval
from core.errors import InvalidToolCallError

RELATIVE_TOLERANCE = 1e-4
"""Of the expected number's magnitude, or of 1 where that is smaller."""


@register
class Calculator(ToolWorld):
    """Tasks: an expression (easy), a longer one or a conversion (medium), or both chained (hard).

    Args:
        params: See ``Environment``.
    """

    name = "calculator"
    state_prefix = "calc"

    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
        """Return task ``index`` of ``seed`` and ``difficulty``; the split only names it."""
        rng = Random(f"calculator:{seed}:{difficulty}:{index}")
        prompt, answer, metadata = draw_task(rng, difficulty)
        return Task(f"calc-{split}-{index}", prompt, answer, difficulty, split, metadata)

    def tool_specs(self) -> list[dict[str, Any]]:
        """Return the specs of ``calculator`` and ``convert``."""
        return [_CALCULATOR_SPEC, _CONVERT_SPEC]

    def tools(self) -> Mapping[str, Tool]:
        """Return both tools."""
        return {"calculator": _compute, "convert": _convert}

    def judge(self, task: Task, answer: str) -> tuple[FailureCategory, str]:
        """Compare an answer with the expected number within 1e-4, relative above 1."""
        unit = None
        if self.verifier_version == "v1":
            value = normalize_number(answer)
        else:
            value, unit = read_answer(answer) or (None, None)
        return _category(task, value, unit), answer.strip()

    def oracle_actions(self, task: Task) -> list[OracleAction]:
        """Return calculator, convert or both, then the final answer."""
        facts = task.metadata
        actions: list[OracleAction] = []
        if "expression" in facts:
            actions.append(ToolCall("calculator", {"expression": facts["expression"]}))
        if "to_unit" in facts:
            value = facts["value"] if "value" in facts else float(facts["intermediate"])
            units = {"from_unit": facts["from_unit"], "to_unit": facts["to_unit"]}
            actions.append(ToolCall("convert", {"value": value, **units}))
        return [*actions, OracleFinal(task.answer)]

    def privileged_context(self, task: Task) -> str:
        """Return the reference answer and, for a chained task, the value between."""
        between = task.metadata.get("intermediate")
        step = "" if between is None else f"The expression is {between}. "
        return f"{step}The right answer is {task.answer}."


def _category(task: Task, value: float | None, unit: str | None) -> FailureCategory:
    wanted_unit = task.metadata.get("to_unit")
    if value is None or (unit is not None and wanted_unit is None):
        return FailureCategory.MALFORMED_ANSWER
    expected = float(task.answer)
    close = abs(value - expected) <= RELATIVE_TOLERANCE * max(1.0, abs(expected))
    right_unit = unit in (None, wanted_unit)
    return FailureCategory.SOLVED if close and right_unit else FailureCategory.WRONG_ANSWER


def _compute(arguments: Mapping[str, Any]) -> str:
    return format_number(safe_eval(text_argument(arguments, "expression")))


def _convert(arguments: Mapping[str, Any]) -> str:
    value = arguments.get("value")
    number = parse_number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidToolCallError("'value' must be a number", "Write it without quotes.")
    source, target = text_argument(arguments, "from_unit"), text_argument(arguments, "to_unit")
    return format_number(convert(number, source, target))


_CALCULATOR_SPEC: dict[str, Any] = {
    "name": "calculator",
    "description": "Computes an arithmetic expression.",
    "parameters": {
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "description": "numbers with + - * / // % ** and parentheses",
                "examples": ["3 * (4 + 5)"],
            }
        },
        "required": ["expression"],
    },
}

_CONVERT_SPEC: dict[str, Any] = {
    "name": "convert",
    "description": "Converts a number from one unit to another.",
    "parameters": {
        "type": "object",
        "properties": {
            "from_unit": {
                "type": "string",
                "description": f"unit of the number, one of {', '.join(UNITS)}",
                "examples": ["kg"],
            },
            "to_unit": {"type": "string", "description": "unit wanted", "examples": ["lb"]},
            "value": {"type": "number", "description": "the number", "examples": [12]},
        },
        "required": ["from_unit", "to_unit", "value"],
    },
}
