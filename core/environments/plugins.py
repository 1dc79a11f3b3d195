"""Environments that are not built in, and the one way to open any environment."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from core.environments.base import Environment
from core.environments.plugin_code import (
    PluginCode,
    PluginIdentity,
    file_code,
    file_module,
    installed_code,
    installed_names,
    load_plugin,
    objects_of,
)
from core.environments.registry import BUILT_IN, construct, make_environment, names
from core.errors import InputError, PluginError


class EnvironmentIdentity(Protocol):
    """What a key knows of a world (``core.recipe.specs.EnvironmentSpec``)."""

    @property
    def name(self) -> str:
        """Name in the registry, or in the plug-in."""
        ...

    @property
    def params(self) -> Mapping[str, Any]:
        """Arguments of the environment."""
        ...

    @property
    def plugin(self) -> PluginIdentity | None:
        """Code that defines it; None for a built-in one."""
        ...


@dataclass(frozen=True)
class EnvironmentChoice:
    """An environment that a person named, with everything needed to make it."""

    name: str
    """Name in the registry, or in the plug-in."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    plugin: PluginCode | None = None
    """Code that defines it; None for a built-in one."""
    path: Path | None = None
    """Where the file lies; None for any other environment."""

    def make(self) -> Environment:
        """Return a new instance.

        Raises:
            InputError: It cannot be made.
        """
        return open_environment(self, self.path)


def open_environment(identity: EnvironmentIdentity, path: Path | None = None) -> Environment:
    """Return a new environment, built in or from a plug-in.

    Args:
        identity: Name, parameters and, for a plug-in, the digest of its code.
        path: Where the plug-in's file lies; not read for any other environment.

    Raises:
        PluginError: The plug-in's code is missing, is other code than was listed, or breaks the
            contract.
        InputError: The name or a parameter is unknown.
    """
    if identity.plugin is None:
        return make_environment(identity.name, **identity.params)
    if identity.name in BUILT_IN:
        raise PluginError(
            f"environment {identity.name!r} is built in", "Give the plug-in's another name."
        )
    found = load_plugin("environment", identity.name, identity.plugin, path, environment_name)
    return construct(identity.name, found, identity.params)


def choose_environment(text: str, params: Mapping[str, Any] | None = None) -> EnvironmentChoice:
    """Return the environment that a person means by a name or a file.

    Args:
        text: A name, ``my_env.py``, or ``my_env.py:NAME`` where a file defines several.
        params: Arguments of the environment.

    Raises:
        InputError: There is no such environment; names those that there are.
    """
    given = dict(params or {})
    file, _, name = text.partition(":")
    if file.endswith(".py"):
        return _in_file(Path(file).absolute(), name, given)
    if text in names():
        return EnvironmentChoice(text, given)
    installed = installed_names("environment")
    if text in installed:
        return EnvironmentChoice(text, given, installed_code("environment", text, installed[text]))
    known = ", ".join([*names(), *sorted(installed)])
    raise InputError(
        f"environment {text!r} does not exist",
        f"Known: {known}; or name a file, such as my_env.py.",
    )


def environment_name(value: object) -> str | None:
    """Return the name of an environment class; None for anything else."""
    if not inspect.isclass(value) or not issubclass(value, Environment):
        return None
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else None


def _in_file(path: Path, name: str, params: Mapping[str, Any]) -> EnvironmentChoice:
    found = sorted(objects_of(file_module("environment", path), environment_name))
    if not found:
        raise PluginError(
            f"{path} defines no environment",
            "Define a subclass of ToolWorld with a name; `opd env new NAME` writes one.",
        )
    if not name and len(found) > 1:
        raise PluginError(
            f"{path} defines several environments", f"Name one, as {path.name}:{found[0]}."
        )
    return EnvironmentChoice(name or found[0], params, file_code(path), path)
