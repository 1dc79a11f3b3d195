"""What a tool may cost: seconds and characters, and results that keep to them."""

import json
import re
from dataclasses import replace
from typing import Any

from core.environments.base import FailureCategory, StepResult, ToolLimits

TOOL_ERROR = "TOOL_ERROR"
"""Error code of a tool that broke."""
TOOL_TIMEOUT = "TOOL_TIMEOUT"
"""Error code of a tool that gave no result in time."""
OUTPUT_TRUNCATED = "OUTPUT_TRUNCATED"
"""Error code of a result that was cut; the call itself may have succeeded."""
NOT_RUN = "NOT_RUN"
"""Error code of a call that was not executed, because an earlier one ended the episode."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def bounded(result: object, limits: ToolLimits) -> StepResult:
    """Return a tool's result within its limits, as text that can be stored.

    Too long a result, error or metadata is cut or left out, and the code says so unless the tool
    gave one. Lone surrogates, which no file can hold, are written out.

    Raises:
        TypeError: It is no ``StepResult``, or a field has the wrong type.
    """
    if not isinstance(result, StepResult):
        raise TypeError(f"a step returned {type(result).__name__}, not StepResult")
    _check_types(result)
    most = limits.characters
    error = None if result.error is None else storable(result.error)
    code = None if result.error_code is None else storable(result.error_code)[:most]
    text = storable(result.result)
    facts = _storable_facts(dict(result.metadata))
    sizes = (len(text), len(error or ""), len(json.dumps(facts)))
    changes = {
        "state_id": storable(result.state_id[:most]),
        "result": text[:most],
        "error": error and error[:most],
        "error_code": code,
        "metadata": facts if sizes[2] <= most else {},
    }
    if max(sizes) > most:
        changes["error_code"] = code or OUTPUT_TRUNCATED
    return replace(result, **changes)


def timed_out(tool: str, limits: ToolLimits) -> StepResult:
    """Return the result of a call that gave none in time."""
    return failed(f"{tool[:40]!r} gave no result within {limits.seconds:g} s", TOOL_TIMEOUT)


def failed(error: str, code: str | None) -> StepResult:
    """Return the result of a call that the world did not answer."""
    return StepResult(
        ok=False,
        state_id="",
        error=storable(error),
        failure_category=FailureCategory.TOOL_ERROR,
        error_code=code,
    )


def _check_types(result: StepResult) -> None:
    texts = {"state_id": result.state_id, "result": result.result}
    optional = {"error": result.error, "error_code": result.error_code}
    texts |= {name: text for name, text in optional.items() if text is not None}
    flags = {"ok": result.ok, "retryable": result.retryable, "intervention": result.intervention}
    for wanted, values in ((str, texts), (bool, flags)):
        for name, value in values.items():
            if not isinstance(value, wanted):
                raise TypeError(f"a step's {name} is {type(value).__name__}, not {wanted.__name__}")


def storable(text: str) -> str:
    """Return a text as a file can hold it: lone surrogates are written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _storable_facts(facts: dict[str, Any]) -> dict[str, Any]:
    # In JSON a written-out surrogate is an escape, which a reader would undo: hence two strokes.
    text = json.dumps(facts, allow_nan=False, ensure_ascii=False)
    return json.loads(_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text))
