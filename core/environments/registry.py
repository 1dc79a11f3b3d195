"""Environments by name."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from core.environments.base import Environment
from core.errors import InputError, OpdError

BUILT_IN = {
    "calculator": "core.environments.calculator",
    "jsonnav": "core.environments.jsonnav",
    "sqlite": "core.environments.sqlite",
    "sqlite_recovery": "core.environments.sqlite_recovery",
    "tool_policy": "core.environments.tool_policy",
}
"""Module that registers each built-in environment; imported when it is asked for."""

SOURCES = {"prompts": "core.environments.prompt_world"}
"""Worlds that a recipe reaches by ``source.kind``: they generate no tasks, so no list names them.
"""

_registered: dict[str, type[Environment]] = {}


def register(environment: type[Environment]) -> type[Environment]:
    """Make an environment class known under its ``name``; a class decorator.

    Raises:
        InputError: Another class has that name.
    """
    known = _registered.setdefault(environment.name, environment)
    if (known.__module__, known.__qualname__) != (environment.__module__, environment.__qualname__):
        raise InputError(
            f"environment {environment.name!r} is already {known.__module__}.{known.__qualname__}",
            "Give one of them another name.",
        )
    _registered[environment.name] = environment
    return environment


def names() -> list[str]:
    """Return the names that ``make_environment`` knows, sorted."""
    return sorted({*BUILT_IN, *_registered} - set(SOURCES))


def make_environment(name: str, **params: Any) -> Environment:
    """Return a new environment.

    Args:
        name: One of ``names()`` or of ``SOURCES``.
        params: Keyword arguments of its class, e.g. ``prompt_style`` or ``protocol_version``.

    Raises:
        InputError: The name or a parameter is unknown.
    """
    if name not in _registered and name in (known := BUILT_IN | SOURCES):
        import_module(known[name])
    if name not in _registered:
        close = get_close_matches(name, names(), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names())}."
        raise InputError(f"environment {name!r} does not exist", hint)
    return construct(name, _registered[name], params)


def construct(name: str, kind: type[Environment], params: Mapping[str, Any]) -> Environment:
    """Return a new instance of an environment's class.

    Raises:
        InputError: The class is abstract, or does not take these parameters; or its constructor
            raises something.
    """
    try:
        return kind(**params)
    except OpdError:
        raise
    except Exception as error:  # a constructor of a user's own raises what it likes
        words = str(error) if isinstance(error, TypeError) else f"{type(error).__name__}: {error}"
        raise InputError(
            f"environment {name!r} cannot be made with {dict(params)}: {words}",
            "See environment.params in the recipe.",
        ) from error
