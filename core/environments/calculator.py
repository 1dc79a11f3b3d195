"""Arithmetic and unit conversion with two tools: the world in which the toy pair learns."""

from collections.abc import Mapping
from random import Random
from typing import Any

from core.environments.answers import normalize_number, read_answer
from core.environments.base import (
    Difficulty,
    Environment,
    FailureCategory,
    Observation,
    OracleAction,
    OracleFinal,
    Split,
    StepResult,
    Task,
    ToolCall,
    VerificationResult,
)
from core.environments.calculator_tasks import draw_task
from core.environments.registry import register
from core.environments.tools import UNITS, convert, format_number, parse_number, safe_eval
from core.errors import ToolEnvironmentError

RELATIVE_TOLERANCE = 1e-4
"""Of the expected number's magnitude, or of 1 where that is smaller."""


@register
class Calculator(Environment):
    """Tasks: an expression (easy), a longer one or a conversion (medium), or both chained (hard).

    Args:
        params: See ``Environment``.
    """

    name = "calculator"

    _task: Task | None = None
    _steps = 0

    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
        """Return task ``index`` of ``seed`` and ``difficulty``; the split only names it."""
        rng = Random(f"calculator:{seed}:{difficulty}:{index}")
        prompt, answer, metadata = draw_task(rng, difficulty)
        return Task(f"calc-{split}-{index}", prompt, answer, difficulty, split, metadata)

    def tool_specs(self) -> list[dict[str, Any]]:
        """Return the specs of ``calculator`` and ``convert``."""
        return [_CALCULATOR_SPEC, _CONVERT_SPEC]

    def reset(self, task: Task) -> Observation:
        """Start an episode of ``task``."""
        self._task, self._steps = task, 0
        return Observation(task.prompt, "calc:0")

    def step(self, call: ToolCall) -> StepResult:
        """Compute or convert."""
        self._steps += 1
        tool = _TOOLS.get(call.name)
        if tool is None:
            known = ", ".join(sorted(_TOOLS))
            error = f"there is no tool {call.name[:40]!r}; the tools are {known}"
            return self._refusal(FailureCategory.UNKNOWN_TOOL, error)
        try:
            value = tool(call.arguments)
        except ToolEnvironmentError as error:
            return self._refusal(FailureCategory.TOOL_ERROR, f"{error.message}. {error.hint}")
        except TypeError as error:
            return self._refusal(FailureCategory.INVALID_TOOL_CALL, str(error))
        return StepResult(ok=True, state_id=f"calc:{self._steps}", result=format_number(value))

    def _refusal(self, category: FailureCategory, error: str) -> StepResult:
        state_id = f"calc:{self._steps}"
        return StepResult(ok=False, state_id=state_id, error=error, failure_category=category)

    def verify(self, answer: str) -> VerificationResult:
        """Judge an answer within 1e-4 of the expected number, relative above 1.

        Raises:
            ToolEnvironmentError: No episode was started.
        """
        if self._task is None:
            raise ToolEnvironmentError("there is no task to verify", "Call reset first.")
        expected, predicted = self._task.answer, answer.strip()
        category = self._judge(self._task, predicted)
        solved = category is FailureCategory.SOLVED
        return VerificationResult(solved, float(solved), expected, predicted, category)

    def _judge(self, task: Task, answer: str) -> FailureCategory:
        unit = None
        if self.verifier_version == "v1":
            value = normalize_number(answer)
        else:
            value, unit = read_answer(answer) or (None, None)
        wanted_unit = task.metadata.get("to_unit")
        if value is None or (unit is not None and wanted_unit is None):
            return FailureCategory.MALFORMED_ANSWER
        expected = float(task.answer)
        close = abs(value - expected) <= RELATIVE_TOLERANCE * max(1.0, abs(expected))
        right_unit = unit in (None, wanted_unit)
        return FailureCategory.SOLVED if close and right_unit else FailureCategory.WRONG_ANSWER

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


def _compute(arguments: Mapping[str, Any]) -> float:
    return safe_eval(_text_argument(arguments, "expression"))


def _convert(arguments: Mapping[str, Any]) -> float:
    value = arguments.get("value")
    number = parse_number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError("'value' must be a number")
    source = _text_argument(arguments, "from_unit")
    return convert(number, source, _text_argument(arguments, "to_unit"))


def _text_argument(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise TypeError(f"{name!r} must be a string")
    return value


_TOOLS = {"calculator": _compute, "convert": _convert}

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
