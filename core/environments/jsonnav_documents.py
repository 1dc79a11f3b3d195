"""The documents of the JSON world: how they are drawn, and how paths read them."""

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

from core.errors import ToolEnvironmentError

MAX_PATH_CHARACTERS = 120

SECTIONS = ("alpha", "beta", "gamma", "delta", "epsilon")
REGIONS = ("north", "south", "east", "west", "central")
TIERS = ("bronze", "silver", "gold")

Document = dict[str, Any]

_SEGMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)((?:\[[0-9]+\])*)")


def build_document(document_seed: int) -> Document:
    """Return a document: sections of which one has a threshold, records, and a pointer to it.

    The order of draws and of keys is part of a task's identity.
    """
    rng = Random(f"jsonnav:{document_seed}")
    names = list(SECTIONS)
    rng.shuffle(names)
    names = names[: rng.randrange(3, 5)]
    sections = {name: _section(rng, name) for name in names}
    pointed = rng.choice(names)
    sections[pointed]["threshold"] = rng.randrange(1, 100)
    records = [_record(rng) for _ in range(rng.randrange(2, 5))]
    version, checked = rng.randrange(1, 9), rng.random() < 0.5
    meta = {"version": version, "pointer": pointed, "checked": checked}
    return {"config": sections, "records": records, "meta": meta}


def _section(rng: Random, name: str) -> Document:
    label = f"{name}-{rng.randrange(100, 999)}"
    section: Document = {"label": label, "region": rng.choice(REGIONS), "tier": rng.choice(TIERS)}
    if rng.random() < 0.6:
        section["capacity"] = rng.randrange(10, 500)
    return section


def _record(rng: Random) -> Document:
    return {
        "id": f"r{rng.randrange(10, 99)}",
        "owner": f"user{rng.randrange(1, 40)}",
        "score": rng.randrange(0, 100),
    }


def parse_path(path: str) -> list[str | int]:
    """Return keys and indices of a path such as ``records[0].owner``; the empty path is the root.

    Raises:
        ToolEnvironmentError: The path has more than 120 characters or is no such path.
    """
    path = path.strip()
    if len(path) > MAX_PATH_CHARACTERS:
        raise ToolEnvironmentError(
            f"the path has {len(path)} characters", f"At most {MAX_PATH_CHARACTERS} are read."
        )
    steps: list[str | int] = []
    for segment in path.split(".") if path else ():
        match = _SEGMENT.fullmatch(segment)
        if match is None:
            raise ToolEnvironmentError(
                f"{segment!r} is no part of a path",
                "Write paths like meta.pointer or records[0].id.",
            )
        steps.append(match[1])
        steps.extend(int(index) for index in re.findall("[0-9]+", match[2]))
    return steps


def read_path(document: Document, path: str) -> Any:
    """Return the value at a path.

    Raises:
        ToolEnvironmentError: The path is malformed or leads nowhere.
    """
    value: Any = document
    for step in parse_path(path):
        value = _member(value, step)
    return value


def _member(value: Any, step: str | int) -> Any:
    if isinstance(value, dict) and step in value:
        return value[step]
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    raise ToolEnvironmentError(f"{step!r} leads nowhere", f"In that place is {_shape(value)}.")


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(sorted(value))}"
    return f"a list of {len(value)}" if isinstance(value, list) else "a plain value"


def key_paths(value: Any, key: str, path: str = "") -> Iterator[str]:
    """Yield the paths under which ``key`` occurs, depth first in the document's order."""
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from key_paths(member, key, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, member in value.items():
            place = f"{path}.{name}" if path else name
            if name == key:
                yield place
            yield from key_paths(member, key, place)


def render_value(value: Any) -> str:
    """Return a value as a tool shows it: strings bare, all else as JSON with sorted keys."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
