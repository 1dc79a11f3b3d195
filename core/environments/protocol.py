"""The turn grammar: how a model calls tools, answers, and reads results.

A turn is optional prose and one block, ``<tool_call>`` JSON ``</tool_call>`` or ``<final>`` text
``</final>``; the environment answers ``<tool_result>`` JSON ``</tool_result>``. The first opening
tag decides, and after the closing tag only white space may follow.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.environments.strict_json import parse_strict_json
from core.errors import ToolCallParseError

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
FINAL_OPEN, FINAL_CLOSE = "<final>", "</final>"
RESULT_OPEN, RESULT_CLOSE = "<tool_result>", "</tool_result>"

STOP_STRINGS = (CALL_CLOSE, FINAL_CLOSE)
"""Texts that end a turn as soon as they are complete."""

_OPENING = re.compile(f"{CALL_OPEN}|{FINAL_OPEN}")
_OPENS_CONTROL_TAG = re.compile(r"<(?=\||tool_call>|tool_result>|final>)")


@dataclass(frozen=True)
class ParsedTurn:
    """What one generated turn says. Offsets count characters of the parsed text.

    Attributes:
        kind: ``tool_call``, ``final`` or ``parse_error``.
        prefix_text: Prose before the block; the whole text of a turn that cannot be read.
        block_start: First character of the typed block; the text's length where there is none.
        block_end: One past its closing tag.
        tool_name: Name of the called tool.
        arguments: Its arguments, ``{}`` where they were absent or null.
        final_answer: Text of the answer without surrounding white space.
        error: Why the turn cannot be read, in words that a model may be shown.
    """

    kind: Literal["tool_call", "final", "parse_error"]
    prefix_text: str
    block_start: int
    block_end: int
    tool_name: str | None = None
    arguments: dict[str, Any] | None = None
    final_answer: str | None = None
    error: str | None = None


def parse_turn(text: str) -> ParsedTurn:
    """Read one generated turn. Total: every string has a result, and none raises."""
    opening = _OPENING.search(text)
    if opening is None:
        return _unreadable(text, f"the turn has neither a {CALL_OPEN} nor a {FINAL_OPEN} block")
    is_call = opening.group() == CALL_OPEN
    closing_tag = CALL_CLOSE if is_call else FINAL_CLOSE
    closing = text.find(closing_tag, opening.end())
    if closing < 0:
        return _unreadable(text, f"{opening.group()} has no {closing_tag}")
    block_end = closing + len(closing_tag)
    if text[block_end:].strip():
        return _unreadable(text, f"the turn goes on after {closing_tag}; write one block per turn")
    body = text[opening.end() : closing]
    place = (text[: opening.start()], opening.start(), block_end)
    if not is_call:
        return ParsedTurn("final", *place, final_answer=body.strip())
    try:
        name, arguments = _read_call(body)
    except ValueError as error:
        return _unreadable(text, f"the tool call cannot be read: {error}")
    return ParsedTurn("tool_call", *place, tool_name=name, arguments=arguments)


def _unreadable(text: str, error: str) -> ParsedTurn:
    return ParsedTurn("parse_error", text, len(text), len(text), error=error)


def _read_call(body: str) -> tuple[str, dict[str, Any]]:
    payload = parse_strict_json(body)
    if not isinstance(payload, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 (one error for all bad text)
    name = payload.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("'name' must be a tool's name")
    arguments = payload.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise ValueError("'arguments' must be a JSON object")
    return name, arguments or {}


def render_tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the block that calls ``name``; keys are sorted, so equal calls are equal texts.

    Raises:
        ToolCallParseError: ``arguments`` hold a value that strict JSON does not have.
    """
    payload = _escaped_json({"name": name, "arguments": dict(arguments)})
    return f"{CALL_OPEN}\n{payload}\n{CALL_CLOSE}"


def render_final(answer: str) -> str:
    """Return the block that answers ``answer``.

    Raises:
        ToolCallParseError: The answer contains a tag of its own block.
    """
    for tag in (FINAL_OPEN, FINAL_CLOSE):
        if tag in answer:
            raise ToolCallParseError(f"the answer contains {tag}", "Write the answer without tags.")
    return f"{FINAL_OPEN}\n{answer}\n{FINAL_CLOSE}"


def render_tool_result(
    ok: bool,
    result: str = "",
    error: str | None = None,
    *,
    code: str | None = None,
    retryable: bool = False,
    intervention: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Return the block that a model reads after its call.

    Whatever ``result`` and ``error`` contain, the block holds no closing tag but its own and no
    control tag of a chat template.

    Args:
        ok: Whether the tool did what it was asked.
        result: Its output; left out unless ``ok``.
        error: Why it refused; left out if ``ok``.
        code: Machine-readable name of the error.
        retryable: Whether the same call may succeed later.
        intervention: Whether the experiment, not the call, caused the error.
        metadata: More facts, left out when empty.

    Raises:
        ToolCallParseError: ``metadata`` hold a value that strict JSON does not have.
    """
    payload: dict[str, Any] = {"ok": ok}
    if ok:
        payload["result"] = result
    else:
        flags = {"code": code, "retryable": retryable, "intervention": intervention}
        payload["error"] = error or ""
        payload |= {key: flag for key, flag in flags.items() if flag}
    if metadata:
        payload["metadata"] = dict(metadata)
    return f"{RESULT_OPEN}\n{_escaped_json(payload)}\n{RESULT_CLOSE}"


def _escaped_json(payload: dict[str, Any]) -> str:
    try:
        text = json.dumps(payload, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolCallParseError(
            f"{error}", "Use finite numbers, strings, booleans, null, lists and string keys."
        ) from error
    # Both escapes are JSON's own, so a reader gets the original characters back.
    text = _OPENS_CONTROL_TAG.sub(r"\\u003c", text.replace("</", r"<\/"))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
