"""Says why something is not in the store: the fields that differ from what is."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from core.artifacts.key import canonical_json
from core.artifacts.record import Record

ABSENT = "(default)"
"""Stands for a field that is not in a payload: it has its default, or does not exist."""


class Difference(NamedTuple):
    """One field that differs."""

    path: str
    """Dotted name, e.g. ``spec.loss.divergence`` or ``parents.student``."""
    here: Any
    """Value in what was asked for."""
    there: Any
    """Value in the sibling."""


class Explanation(NamedTuple):
    """The nearest sibling of a missing artifact, and how it differs."""

    sibling: Record | None
    differences: list[Difference]


def explain(payload: Mapping[str, Any], siblings: Iterable[Record]) -> Explanation:
    """Compare a payload with its nearest sibling.

    Nearest is the one with the fewest differing fields; among equals, the newest.

    Args:
        payload: What the missing key is the hash of.
        siblings: Records to compare with, e.g. ``store.siblings(kind)``.

    Returns:
        The sibling with the differences by path, or no sibling where there is none. No
        differences: it was built already, and its files were pruned, damaged or refused.
    """
    newest_first = sorted(siblings, key=lambda record: record.provenance.started, reverse=True)
    compared = [(record, differences(payload, record.payload)) for record in newest_first]
    if not compared:
        return Explanation(None, [])
    return Explanation(*min(compared, key=lambda pair: len(pair[1])))


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[Difference]:
    """List the leaves in which two payloads differ, by path. A list is one leaf."""
    left, right = dict(_leaves(here, "")), dict(_leaves(there, ""))
    pairs = (
        Difference(path, left.get(path, ABSENT), right.get(path, ABSENT))
        for path in sorted(left.keys() | right.keys())
    )
    return [pair for pair in pairs if canonical_json(pair.here) != canonical_json(pair.there)]


def _leaves(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [(path, value)]
    inner = ((f"{path}.{name}" if path else name, item) for name, item in value.items())
    return [leaf for where, item in inner for leaf in _leaves(item, where)]
