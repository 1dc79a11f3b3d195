"""Identity: one canonical text for a value, and a key that is its hash.

The text is what ``json.dumps(payload, sort_keys=True, separators=(",", ":"))`` gives, so anyone
can recompute a key from the payload in a record. Two rules go beyond JSON:

* Fields of a pydantic model that equal their default are left out, at every depth, so a schema
  may grow without forking every key. (Changing a default therefore needs a new task version.)
* Fields annotated with a single literal are tags that tell models of a union apart: always kept.

What has no text of its own (paths, callables, tensors, NaN, unknown objects) is refused by name.
"""

import hashlib
import json
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel

from core.artifacts.record import ArtifactRef
from core.errors import KeyEncodingError

KEY_LENGTH = 16
"""Hex digits of a key: 64 bits."""

Hint: TypeAlias = "frozenset[object] | None"
"""Types that a field's annotation mentions, at any depth; None where nothing was annotated."""


@dataclass(frozen=True)
class Key:
    """A key with the payload it is the hash of."""

    key: str
    payload: dict[str, Any]


def compute_key(
    task: str,
    version: str,
    spec: BaseModel | Mapping[str, Any],
    parents: Mapping[str, ArtifactRef | str],
) -> Key:
    """Hash what a task is about to compute.

    Args:
        task: Name of the task, e.g. ``sample_rollouts``.
        version: The task's ``VERSION``; a new one whenever its meaning or a default changes.
        spec: The smallest description the task needs; its default-valued fields are left out.
        parents: Role to artifact (or its content digest). Only the digest enters: a parent that
            was rebuilt with the same bytes changes nothing.

    Raises:
        KeyEncodingError: Something in ``spec`` has no canonical text; names the dotted field.
    """
    payload = {
        "task": task,
        "version": version,
        "spec": encode(spec, "spec"),
        "parents": {role: _content(role, parent) for role, parent in parents.items()},
    }
    return Key(key_of_payload(payload), payload)


def key_of_payload(payload: Mapping[str, Any]) -> str:
    """Recompute the key of a payload that was read back from a record."""
    return hashlib.sha256(_dumps(payload).encode()).hexdigest()[:KEY_LENGTH]


def canonical_json(value: object) -> str:
    """Return the one canonical text of a value.

    Raises:
        KeyEncodingError: The value, or something in it, has none; names the dotted field.
    """
    return _dumps(encode(value))


def encode(value: object, path: str = "", hint: Hint = None) -> Any:
    """Reduce a value to plain JSON data.

    Args:
        value: Scalars, strings, enums, lists, tuples, sets, string-keyed mappings, models.
        path: Dotted name of the value, for messages.
        hint: Types in the annotation of the field that holds it.

    Raises:
        KeyEncodingError: The value, or something in it, is of no such type or is not finite.
    """
    if isinstance(value, Enum):
        return encode(value.value, path, hint)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return _number(value, path, hint)
    if isinstance(value, BaseModel):
        return _model(value, path, hint)
    return _container(value, path, hint)


def _container(value: object, path: str, hint: Hint) -> Any:
    if isinstance(value, Mapping):
        return {_name(k, path): encode(v, _join(path, k), hint) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item, f"{path}[{i}]", hint) for i, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return sorted((encode(item, f"{path}{{}}", hint) for item in value), key=_dumps)
    raise _refusal(value, path)


def _dumps(plain: object) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _number(value: float, path: str, hint: Hint) -> int | float:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise KeyEncodingError(
                f"{path or 'value'} is {value}, which has no canonical text",
                "Use a finite number, or None where nothing is meant.",
            )
        return float(value)
    # Pydantic does not coerce defaults and copies: 1 in a float field must hash as 1.0 does.
    if hint is not None and float in hint and int not in hint:
        return float(value)
    return int(value)


def _name(key: object, path: str) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return key
    raise KeyEncodingError(
        f"{path or 'value'} has the key {key!r}, and only strings may be keys",
        "Write the mapping with string keys.",
    )


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _model(value: BaseModel, path: str, hint: Hint) -> dict[str, Any]:
    cls = type(value)
    hints = _field_hints(cls)
    tags = _tags(cls)
    if hint is not None and not tags and {t for t in hint if _is_model(t)} != {cls}:
        raise KeyEncodingError(
            f"{path} holds a {cls.__name__}, but its annotation does not say so alone",
            'Give each model of the union a tag such as kind: Literal["..."].',
        )
    encoded: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        where = _join(path, name)
        plain = encode(getattr(value, name), where, hints[name])
        if name in tags or field.is_required():
            encoded[name] = plain
            continue
        default = field.get_default(call_default_factory=True, validated_data=dict(value))
        # Compared as text, because True == 1 == 1.0 in Python.
        if _dumps(plain) != _dumps(encode(default, where, hints[name])):
            encoded[name] = plain
    for name, extra in (value.model_extra or {}).items():
        encoded[name] = encode(extra, _join(path, name))
    return encoded


@cache
def _field_hints(cls: type[BaseModel]) -> dict[str, frozenset[object]]:
    return {name: frozenset(_leaves(f.annotation)) for name, f in cls.model_fields.items()}


@cache
def _tags(cls: type[BaseModel]) -> frozenset[str]:
    fields = cls.model_fields.items()
    return frozenset(name for name, field in fields if _is_tag(field.annotation))


def _is_tag(annotation: object) -> bool:
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def _leaves(annotation: object) -> Iterable[object]:
    origin = get_origin(annotation)
    if origin is Literal or not get_args(annotation):
        return [annotation]
    inner = get_args(annotation)[:1] if origin is Annotated else get_args(annotation)
    return [leaf for part in inner for leaf in _leaves(part)]


def _is_model(leaf: object) -> bool:
    return isinstance(leaf, type) and issubclass(leaf, BaseModel)


def _content(role: str, parent: ArtifactRef | str) -> str:
    digest = parent.digest if isinstance(parent, ArtifactRef) else parent
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise KeyEncodingError(
            f"parents.{role} is {digest!r}, not a content digest",
            "Pass the parent's ArtifactRef, or the 64 hex digits of its content.",
        )
    return digest


def _refusal(value: object, path: str) -> KeyEncodingError:
    what = type(value).__name__
    if isinstance(value, PurePath):
        hint = "A path is where, not what: pass the content digest of the file, or use Runtime."
    elif isinstance(value, types.FunctionType | types.MethodType | type) or callable(value):
        hint = "Pass the name of the function instead, and select it inside the task."
    elif hasattr(value, "__array__"):
        hint = "Publish the array as an artifact and pass it as a parent."
    else:
        hint = "Use plain values, enums, lists, sets, string-keyed mappings or pydantic models."
    return KeyEncodingError(f"{path or 'value'} is a {what}, which has no canonical text", hint)
