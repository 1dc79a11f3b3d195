"""The turn grammar: how a model calls tools, answers, and reads results.

A turn is optional prose and one block, ``<tool_call>`` JSON ``</tool_call>`` or ``<final>`` text
``</final>``; the environment answers ``<tool_result>`` JSON ``</tool_result>``. The first opening
tag decides, and after the closing tag only white space may follow. A grammar that permits several
calls reads several call blocks in a row, with nothing but white space between them.
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


MOST_CALLS = 16
"""Upper limit of ``Grammar.max_calls``."""


@dataclass(frozen=True)
class Grammar:
    """What a turn may be.

    Attributes:
        strict: Refuse what the lenient grammar lets pass: a blank tool name, and keys of a call
            besides ``name`` and ``arguments``. Errors then carry a code.
        max_calls: Calls that one turn may hold.
    """

    strict: bool = False
    max_calls: int = 1

    @property
    def stops(self) -> dict[str, int]:
        """Texts that end a turn, and how often each must be complete to do so."""
        return {CALL_CLOSE: self.max_calls, FINAL_CLOSE: 1}


LENIENT = Grammar()
"""The grammar of protocol versions v1 and v2."""


@dataclass(frozen=True)
class ParsedCall:
    """One call of a turn; offsets count characters of the turn's text."""

    name: str
    arguments: dict[str, Any]
    start: int
    end: int


@dataclass(frozen=True)
class ParsedTurn:
    """What one generated turn says. Offsets count characters of the parsed text.

    Attributes:
        kind: ``tool_call``, ``final`` or ``parse_error``.
        prefix_text: Prose before the block; the whole text of a turn that cannot be read.
        block_start: First character of the typed block; the text's length where there is none.
        block_end: One past its closing tag, or that of the last block.
        tool_name: Name of the called tool; of the first, where there are several.
        arguments: Its arguments, ``{}`` where they were absent or null.
        final_answer: Text of the answer without surrounding white space.
        error: Why the turn cannot be read, in words that a model may be shown.
        calls: All calls in their order.
        error_code: Name of the error in a strict grammar.
    """

    kind: Literal["tool_call", "final", "parse_error"]
    prefix_text: str
    block_start: int
    block_end: int
    tool_name: str | None = None
    arguments: dict[str, Any] | None = None
    final_answer: str | None = None
    error: str | None = None
    calls: tuple[ParsedCall, ...] = ()
    error_code: str | None = None

    @property
    def blocks(self) -> tuple[tuple[int, str | None], ...]:
        """Start of every typed block, and the tool that it calls."""
        if self.kind == "final":
            return ((self.block_start, None),)
        return tuple((call.start, call.name) for call in self.calls)


class _UnreadableError(ValueError):
    def __init__(self, message: str, code: str = "UNREADABLE_TURN") -> None:
        super().__init__(message)
        self.code = code


def parse_turn(text: str, grammar: Grammar = LENIENT) -> ParsedTurn:
    """Read one generated turn. Total: every string has a result, and none raises."""
    try:
        return _read_turn(text, grammar)
    except _UnreadableError as error:
        code = error.code if grammar.strict else None
        size = len(text)
        return ParsedTurn("parse_error", text, size, size, error=str(error), error_code=code)


def _read_turn(text: str, grammar: Grammar) -> ParsedTurn:
    opening = _OPENING.search(text)
    if opening is None:
        raise _UnreadableError(f"the turn has neither a {CALL_OPEN} nor a {FINAL_OPEN} block")
    if opening.group() == FINAL_OPEN:
        return _read_final(text, opening.start())
    calls = tuple(
        _read_call(text, start, end, strict=grammar.strict)
        for start, end in _call_blocks(text, opening.start(), grammar.max_calls)
    )
    first = calls[0]
    return ParsedTurn(
        "tool_call",
        text[: first.start],
        first.start,
        calls[-1].end,
        tool_name=first.name,
        arguments=first.arguments,
        calls=calls,
    )


def _read_final(text: str, start: int) -> ParsedTurn:
    end = _end_of_block(text, start, FINAL_OPEN, FINAL_CLOSE)
    if text[end:].strip():
        raise _goes_on(FINAL_CLOSE, 1)
    answer = text[start + len(FINAL_OPEN) : end - len(FINAL_CLOSE)].strip()
    return ParsedTurn("final", text[:start], start, end, final_answer=answer)


def _end_of_block(text: str, start: int, opening: str, closing: str) -> int:
    found = text.find(closing, start + len(opening))
    if found < 0:
        raise _UnreadableError(f"{opening} has no {closing}")
    return found + len(closing)


def _goes_on(closing: str, max_calls: int) -> _UnreadableError:
    rule = "write one block per turn"
    if max_calls > 1:
        rule = f"write one answer or up to {max_calls} calls per turn, and nothing between or after"
    return _UnreadableError(f"the turn goes on after {closing}; {rule}")


def _call_blocks(text: str, start: int, max_calls: int) -> list[tuple[int, int]]:
    """Return start and end of each call block; only white space lies between and after them."""
    blocks: list[tuple[int, int]] = []
    while start < len(text):
        if len(blocks) == max_calls or not text.startswith(CALL_OPEN, start):
            raise _goes_on(CALL_CLOSE, max_calls)
        end = _end_of_block(text, start, CALL_OPEN, CALL_CLOSE)
        blocks.append((start, end))
        start = len(text) - len(text[end:].lstrip())
    return blocks


def _read_call(text: str, start: int, end: int, *, strict: bool) -> ParsedCall:
    body = text[start + len(CALL_OPEN) : end - len(CALL_CLOSE)]
    try:
        payload = parse_strict_json(body)
    except ValueError as error:
        raise _bad_call(str(error)) from error
    if not isinstance(payload, dict):
        raise _bad_call("it is not a JSON object")
    name = payload.get("name")
    if not isinstance(name, str) or not name:
        raise _bad_call("'name' must be a tool's name")
    if strict:
        _check_strictly(payload, name)
    arguments = payload.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise _bad_call("'arguments' must be a JSON object")
    return ParsedCall(name, arguments or {}, start, end)


def _check_strictly(payload: dict[str, Any], name: str) -> None:
    if not name.strip():
        raise _bad_call("'name' is blank", "BLANK_TOOL_NAME")
    for key in payload.keys() - {"name", "arguments"}:
        raise _bad_call(f"a call has no key {key[:40]!r}", "UNKNOWN_CALL_KEY")


def _bad_call(reason: str, code: str = "UNREADABLE_CALL") -> _UnreadableError:
    return _UnreadableError(f"the tool call cannot be read: {reason}", code)


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
    call_id: str | None = None,
) -> str:
    """Return the block that a model reads after its call.

    Whatever ``result`` and ``error`` contain, the block holds no closing tag but its own and no
    control tag of a chat template.

    Args:
        ok: Whether the tool did what it was asked.
        result: Its output; left out unless ``ok``.
        error: Why it refused; left out if ``ok``.
        code: Machine-readable name of the error, or of what befell the result.
        retryable: Whether the same call may succeed later.
        intervention: Whether the experiment, not the call, caused the error.
        metadata: More facts, left out when empty.
        call_id: Name of the call, where a turn may hold several.

    Raises:
        ToolCallParseError: ``metadata`` hold a value that strict JSON does not have.
    """
    payload: dict[str, Any] = {"ok": ok}
    flags: dict[str, Any] = {"id": call_id, "code": code}
    if ok:
        payload["result"] = result
    else:
        payload["error"] = error or ""
        flags |= {"retryable": retryable, "intervention": intervention}
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
