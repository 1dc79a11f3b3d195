"""What a row of a prompt file says: its messages, its answer, and what only a teacher reads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.environments.answer_checks import extract_answer, read_number
from core.errors import PromptFileError
from core.prompts.files import RawRow
from core.recipe.prompt_specs import PromptSplitSpec

MISSING = object()

OPTIONAL = ("data_source",)
"""Columns that a row may have and no key names."""


@dataclass(frozen=True)
class PromptRow:
    """One prompt.

    Attributes:
        place: File and row number, for errors.
        number: Row of its file, from 1.
        system: System message; empty where there is none.
        user: The prompt.
        answer: Reference answer; empty where answers are not judged.
        demonstration: A response to learn from, or None.
        hint: What a privileged teacher may read, or None.
        data_source: The row's ``data_source``, or None.
    """

    place: str
    number: int
    system: str
    user: str
    answer: str = ""
    demonstration: str | None = None
    hint: str | None = None
    data_source: str | None = None


def columns(spec: PromptSplitSpec) -> list[str]:
    """Return the dotted names of the columns that a recipe reads."""
    named = (spec.prompt_key, spec.answer_key, spec.demonstration_key, spec.privileged_key)
    return list(dict.fromkeys(name for name in named if name is not None))


def read_row(raw: RawRow, spec: PromptSplitSpec) -> PromptRow:
    """Return what a row says.

    Raises:
        PromptFileError: A column is missing, empty or of another type, or the answer cannot be
            judged; names file, row and column.
    """
    system, user = _messages(raw, spec)
    source = raw.values.get("data_source")
    return PromptRow(
        place=raw.place,
        number=raw.number,
        system=spec.system_prompt or "" if system is None else system,
        user=user,
        answer=_answer(raw, spec),
        demonstration=_text(raw, spec.demonstration_key),
        hint=_text(raw, spec.privileged_key),
        data_source=source if isinstance(source, str) else None,
    )


def _messages(raw: RawRow, spec: PromptSplitSpec) -> tuple[str | None, str]:
    """Return system message, if any, and user message."""
    key, value = spec.prompt_key, _value(raw, spec.prompt_key)
    if isinstance(value, str):
        if not spec.allow_plain_string_prompts:
            raise _refused(
                raw,
                key,
                "is text, and a list of chat messages is expected",
                "Set source.allow_plain_string_prompts: true to read it as a user message.",
            )
        return None, _not_blank(raw, key, value)
    if not isinstance(value, Sequence) or not value:
        raise _refused(
            raw,
            key,
            f"is {_kind(value)}, and a list of chat messages is expected",
            'Write it as [{"role": "user", "content": "…"}].',
        )
    messages = [_message(raw, key, index, each) for index, each in enumerate(value)]
    roles = [role for role, _ in messages]
    if roles not in (["user"], ["system", "user"]):
        raise _refused(
            raw,
            key,
            f"has messages of {', '.join(roles)}",
            "A single-turn prompt is one user message, after one system message at most.",
        )
    system = messages[0][1] if len(messages) == 2 else None
    return system, _not_blank(raw, key, messages[-1][1])


def _message(raw: RawRow, key: str, index: int, value: Any) -> tuple[str, str]:
    place = f"{key}[{index}]"
    if not isinstance(value, Mapping):
        raise _refused(
            raw, place, f"is {_kind(value)}", "A message is an object with role and content."
        )
    for name in ("role", "content"):
        if not isinstance(value.get(name), str):
            raise _refused(
                raw,
                f"{place}.{name}",
                f"is {_kind(value.get(name, MISSING))}",
                "Role and content of a message are text; other media are not read.",
            )
    return value["role"], _whole(raw, f"{place}.content", value["content"])


def _answer(raw: RawRow, spec: PromptSplitSpec) -> str:
    if spec.answer_key is None:
        return ""
    text = _text(raw, spec.answer_key) or ""
    # A reference may be a whole solution or the bare answer; a response is held to the marker.
    found = extract_answer(text, spec.answer_marker)
    answer = found if found is not None else text.strip()
    if spec.answer_check == "numeric" and read_number(answer) is None:
        raise _refused(
            raw,
            spec.answer_key,
            f"is {answer[:40]!r}, which is no number",
            "Set source.answer_marker to what precedes the number, or source.answer_check: exact.",
        )
    return answer


def _text(raw: RawRow, key: str | None) -> str | None:
    """Return a column's text, numbers as JSON writes them; None where no column is named."""
    if key is None:
        return None
    value = _value(raw, key)
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(raw, key, f"is {value}", "Write a finite number or text.")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise _refused(raw, key, f"is {_kind(value)}", "Write text or a number.")
    return _not_blank(raw, key, value)


def _value(raw: RawRow, key: str) -> Any:
    """Return the value of a dotted name: the column spelt like it, or a member of a column."""
    if key in raw.values:
        return raw.values[key]
    value: Any = raw.values
    for part in key.split("."):
        value = value.get(part, MISSING) if isinstance(value, Mapping) else MISSING
    if value is MISSING:
        known = ", ".join(map(str, raw.values))
        raise _refused(raw, key, "is missing", f"The row has {known or 'no columns'}.")
    return value


def _not_blank(raw: RawRow, key: str, text: str) -> str:
    if not text.strip():
        raise _refused(raw, key, "is empty", "Fill it in or remove the row.")
    return _whole(raw, key, text)


def _whole(raw: RawRow, key: str, text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        hint = "Write whole characters."
        raise _refused(raw, key, "holds half of a surrogate pair", hint) from error
    return text


def _kind(value: Any) -> str:
    if value is MISSING:
        return "missing"
    if value is None:
        return "null"
    if isinstance(value, str | bytes | list | tuple) and not value:
        return f"an empty {type(value).__name__}"
    return f"of type {type(value).__name__}"


def _refused(raw: RawRow, key: str, what: str, hint: str) -> PromptFileError:
    return PromptFileError(f"{raw.place}: {key} {what}", hint)
