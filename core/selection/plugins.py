"""Selectors that are not built in: ``rule(trajectory, spec, seed) -> positions``.

The rule is asked once per trajectory. ``spec`` has the recipe's ``ratio`` and the plug-in's
``params``; ``seed`` belongs to this run and trajectory, so ``random.Random(seed)`` draws the same
numbers whenever the trajectory comes up again. It returns positions of target tokens, in any order,
among ``trajectory.target_positions()``; weights, the cap and the first tokens of a turn that are
left out are applied as for every other selector.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from core.environments.plugin_code import PluginIdentity, load_plugin
from core.errors import PluginError
from core.selection.selectors import OwnRule
from core.trajectory.trajectory import Trajectory


@dataclass(frozen=True)
class RuleSettings:
    """What a rule may read of its recipe."""

    ratio: float
    """``selection.ratio``."""
    params: Mapping[str, Any]
    """``selection.plugin.params``."""


class NamedIdentity(PluginIdentity, Protocol):
    """What a key knows of a selector's plug-in."""

    @property
    def name(self) -> str:
        """Function, or entry point."""
        ...

    @property
    def params(self) -> Mapping[str, Any]:
        """Settings that it reads."""
        ...


class PluginSelection(Protocol):
    """What a key knows of a selection (``core.recipe.specs.SelectionSpec``)."""

    @property
    def ratio(self) -> float:
        """Share of the student's tokens."""
        ...

    @property
    def plugin(self) -> NamedIdentity | None:
        """Code of the rule; None for one that is built in."""
        ...


def open_selector(spec: PluginSelection, path: Path | None = None) -> OwnRule | None:
    """Return the rule of a selection's plug-in; None where the selector is built in.

    Args:
        spec: The selection.
        path: Where the plug-in's file lies.

    Raises:
        PluginError: The code is missing, is other code than was listed, or defines no such rule.
    """
    plugin = spec.plugin
    if plugin is None:
        return None
    rule = load_plugin("selector", plugin.name, plugin, path, rule_name)
    settings = RuleSettings(spec.ratio, plugin.params)

    def choose(trajectory: Trajectory, candidates: list[int], seed: int) -> list[int]:
        try:
            chosen = rule(trajectory, settings, seed)
            if isinstance(chosen, Iterator):  # a generator's code runs here, and may raise
                chosen = list(chosen)
        except Exception as error:
            raise PluginError(
                f"selector {plugin.name} raises on {trajectory.trajectory_id}: "
                f"{type(error).__name__}: {error}",
                "Mend it; a rule must be able to choose from any trajectory, or choose nothing.",
            ) from error
        return _checked(plugin.name, trajectory, chosen, candidates)

    return choose


def rule_name(value: object) -> str | None:
    """Return the name of a public function; None for anything else."""
    name = value.__name__ if inspect.isfunction(value) else "_"
    return None if name.startswith("_") else name


def _checked(
    name: str, trajectory: Trajectory, chosen: Iterable[int], candidates: list[int]
) -> list[int]:
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise _breach(name, trajectory, f"returns a {type(chosen).__name__}, not positions")
    positions, own = list(chosen), set(trajectory.target_positions())
    for position in positions:
        if type(position) is not int or position not in own:
            raise _breach(name, trajectory, f"returns {position!r}, no position of the student's")
    if len(set(positions)) < len(positions):
        raise _breach(name, trajectory, "returns a position twice")
    allowed = set(candidates)
    return sorted(position for position in positions if position in allowed)


def _breach(name: str, trajectory: Trajectory, reason: str) -> PluginError:
    return PluginError(
        f"selector {name} {reason} ({trajectory.trajectory_id})",
        "Choose whole numbers from trajectory.target_positions(), each at most once.",
    )
