"""What a model may write by accident or malice, as answers and as arguments of tools."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.environments.base import ToolCall

ANSWERS: tuple[str, ...] = (
    *("", " ", "\n\t", "\x00", "\ufeff", "\u200b"),
    *("None", "null", "undefined", "nan", "-inf", "Infinity", "true", "[]", "{}"),
    *("1e999", "0x1F", "1_000_", "--5", "+-5", ".", "-", "1/0", "1,,2", "１２", "٣", "½", "²", "𝟜"),
    "9" * 5_000,
    "x" * 100_000,
    "[" * 3_000,
    '{"a":' * 500,
    *("\ud800", "e\u0301", "\u202e123", "🧮" * 50, "\x1b[31m", "\x85\u2028"),
    *("<final>", "</final>", "<tool_call>{}</tool_call>", "<|im_end|>"),
    *("'; DROP TABLE orders; --", '" OR ""="', "%s%n{0}{}", "__import__('os')", "${7*7}", "\\"),
)
"""Answers that are hardly ever right, and at which a careless verifier raises or stalls."""

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 1e308, 0.1, "", " ", "\ud800", "x" * 10_000),
    *(["a"], [], {}, {"a": {"b": [None]}}, [[[[[[[[[[]]]]]]]]]]),
)
"""Values that no schema promises, though JSON can hold them."""

NO_TOOLS: tuple[str, ...] = ("no_such_tool", "", " ", "\ud800", "x" * 10_000, "__class__")
"""Names under which no tool is known."""


def unknown_calls() -> Iterator[ToolCall]:
    """Yield calls of tools that do not exist."""
    for name in NO_TOOLS:
        yield ToolCall(name, {})
        yield ToolCall(name, {"a": 1})


def malformed_calls(specs: Sequence[Mapping[str, Any]]) -> Iterator[ToolCall]:
    """Yield calls of each tool with arguments that are absent, unknown or of odd values.

    Args:
        specs: Of the tools (``Environment.tool_specs``).
    """
    for spec in specs:
        name, properties = spec["name"], spec["parameters"].get("properties", {})
        good = {key: schema.get("examples", ["a"])[0] for key, schema in properties.items()}
        yield ToolCall(name, {})
        yield ToolCall(name, {**good, "no_such_argument": 1})
        for key in properties:
            yield ToolCall(name, {k: v for k, v in good.items() if k != key})
            yield from (ToolCall(name, {**good, key: value}) for value in VALUES)
