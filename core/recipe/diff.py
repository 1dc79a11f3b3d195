"""What differs between two recipes or specs, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class Difference:
    """One dotted key with two values; None stands for null and for absent."""

    path: str
    left: Any
    right: Any


def structured_diff(
    left: BaseModel | Mapping[str, Any], right: BaseModel | Mapping[str, Any]
) -> list[Difference]:
    """Return the keys whose values differ, in the order of ``left``.

    Args:
        left: Recipe, spec or nested mapping.
        right: The same kind of thing.

    Returns:
        One row per differing leaf; lists are leaves, and an absent section is compared as empty.
    """
    return list(_rows("", _plain(left), _plain(right)))


def _plain(value: BaseModel | Mapping[str, Any]) -> Mapping[str, Any]:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _rows(path: str, left: Any, right: Any) -> Iterator[Difference]:
    sections = [side for side in (left, right) if isinstance(side, Mapping)]
    if not sections or not all(side is None or isinstance(side, Mapping) for side in (left, right)):
        if left != right:
            yield Difference(path, left, right)
        return
    left, right = left or {}, right or {}
    for name in dict.fromkeys([*left, *right]):
        yield from _rows(f"{path}.{name}".lstrip("."), left.get(name), right.get(name))
