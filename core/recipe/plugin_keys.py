"""Plug-ins of a recipe: where a file lies is execution, and what is in it identity."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from core.environments.plugin_code import (
    Kind,
    PluginCode,
    PluginIdentity,
    file_code,
    installed_code,
    sources,
)
from core.errors import PluginError
from core.recipe.document import Document
from core.recipe.plugin_specs import NamedPluginSpec
from core.recipe.problems import Problem, problem
from core.recipe.runtime import PluginFiles

PLUGIN_KEYS: dict[Kind, str] = {
    "environment": "environment.plugin",
    "teacher": "models.teacher.plugin",
    "selector": "selection.plugin",
}
"""Section of a recipe that lists each kind of plug-in."""


def settle_plugins(document: Document, directory: Path) -> list[Problem]:
    """Take plug-ins' paths as relative to the recipe, and say which digests are missing.

    Args:
        document: Execution keys in section ``runtime``.
        directory: Of the recipe's file.
    """
    problems = []
    for kind, key in PLUGIN_KEYS.items():
        file = ("runtime", "plugins", kind)
        given, section = document.get(file), tuple(key.split("."))
        if isinstance(given, str):
            place, label = document.place(file), document.label(file)
            document.set(file, str((directory / given).absolute()), place)
            document.rename(file, label)
        listed = document.has((*section, "sha256"))
        if not listed and (document.has(file) or document.has((*section, "distribution"))):
            problems.append(_unlisted(document, kind, key))
    return problems


def _unlisted(document: Document, kind: Kind, key: str) -> Problem:
    """Refuse a plug-in without a digest, with the digest that it has now."""
    try:
        code = _present(document, kind, tuple(key.split(".")))
    except PluginError as error:
        return problem(key, error.message, error.hint)
    version = "" if code.version is None else f"version: '{code.version}' and "
    hint = f"If this is the code that you mean, write {version}sha256: {code.sha256}"
    return problem(f"{key}.sha256", "is missing, and unlisted code is never run", hint)


def _present(document: Document, kind: Kind, section: tuple[str, ...]) -> PluginCode:
    file = document.get(("runtime", "plugins", kind))
    if file is not None:
        return file_code(Path(str(file)))
    own = document.get((*section, "name"))
    name = document.get(("environment", "name")) if kind == "environment" else own
    return installed_code(kind, str(name), str(document.get((*section, "distribution"))))


def plugin_sources(spec: BaseModel, files: PluginFiles) -> dict[str, Path]:
    """Return the sources of the plug-ins that a step of ``spec`` runs, by module name.

    Raises:
        PluginError: A file is not at hand, or is not the one that was listed.
    """
    found: dict[str, Path] = {}
    environment = getattr(spec, "environment", None)
    if environment is not None and environment.plugin is not None:
        named = (environment.name, environment.plugin, files.environment)
        found |= sources("environment", *named)
    selection: Any = getattr(spec, "selection", None)
    if selection is not None and selection.plugin is not None:
        found |= sources("selector", selection.plugin.name, selection.plugin, files.selector)
    teacher = getattr(spec, "plugin", None)
    if isinstance(teacher, NamedPluginSpec):
        found |= sources("teacher", teacher.name, teacher, files.teacher)
    return found


def is_at_hand(identity: PluginIdentity, path: Path | None) -> bool:
    """Return whether a plug-in can be looked for: a file has a place, a distribution needs none."""
    return identity.distribution is not None or path is not None
