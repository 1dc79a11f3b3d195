"""Code of a user's own: named by a recipe, compared with its digest, and only then run.

A plug-in is one file, or an entry point of an installed distribution. A file is identified by the
SHA-256 of its bytes; an entry point by distribution, version and a digest over the files of its
package. Nothing is imported to look for plug-ins: entry points are metadata until a recipe names
one. The bytes that were compared are the bytes that run.
"""

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

from core.errors import PluginError

Kind = Literal["environment", "teacher", "selector"]

GROUPS: dict[Kind, str] = {
    "environment": "opdflow.environments",
    "teacher": "opdflow.teachers",
    "selector": "opdflow.selectors",
}
"""Entry-point group of each kind of plug-in."""

_PREFIX = "opdflow_plugin_"  # of the names of modules that were made from files

Naming = Callable[[object], str | None]
"""Returns the name that an object answers to as a plug-in; None where it is none."""


class PluginIdentity(Protocol):
    """What a key knows of a plug-in's code (``core.recipe.schema.plugin``)."""

    @property
    def sha256(self) -> str:
        """Digest of the file, or of the files of the distribution's package."""
        ...

    @property
    def distribution(self) -> str | None:
        """Installed distribution; None for a file."""
        ...

    @property
    def version(self) -> str | None:
        """Its version; None for a file."""
        ...


@dataclass(frozen=True)
class PluginCode:
    """A plug-in's code as it is found here and now."""

    sha256: str
    """Digest of the file, or of the files of the distribution's package."""
    distribution: str | None = None
    """Installed distribution; None for a file."""
    version: str | None = None
    """Its version; None for a file."""


def file_code(path: Path) -> PluginCode:
    """Return the identity of a file.

    Raises:
        PluginError: It cannot be read.
    """
    return PluginCode(hashlib.sha256(_read(path)).hexdigest())


def installed_code(kind: Kind, name: str, distribution: str) -> PluginCode:
    """Return the identity of an entry point, without importing it.

    Raises:
        PluginError: The distribution is not installed, has no such entry point, or its package
            cannot be found.
    """
    point, version = _entry_point(kind, name, distribution)
    return PluginCode(_package_digest(point.module), distribution, version)


def installed_names(kind: Kind) -> dict[str, str]:
    """Return the distribution of every installed entry point of a kind, by the plug-in's name."""
    points = metadata.entry_points(group=GROUPS[kind])
    return {point.name: point.dist.name for point in points if point.dist is not None}


def load_plugin(
    kind: Kind, name: str, identity: PluginIdentity, path: Path | None, naming: Naming
) -> Any:
    """Return the named object of a plug-in, running its code if this process has not yet.

    Args:
        kind: For messages, and the entry-point group.
        name: What the recipe calls it.
        identity: What the recipe lists.
        path: Where the file lies; not read for an entry point.
        naming: Tells plug-ins of this kind from everything else in a module.

    Raises:
        PluginError: The code is missing, is other code than was listed, cannot be imported, or
            defines no such plug-in.
    """
    if identity.distribution is not None:
        source = f"distribution {identity.distribution}"
        found = _installed_objects(kind, name, identity, naming)
    else:
        module = _file_module(kind, identity.sha256, path)
        source, found = str(module.__file__), objects_of(module, naming)
    if name not in found:
        known = f"It defines: {', '.join(sorted(found))}." if found else "It defines none."
        raise PluginError(
            f"{source} defines no {kind} {name!r}", f"{known} See docs/environments.md."
        )
    return found[name]


def objects_of(module: ModuleType, naming: Naming) -> dict[str, Any]:
    """Return what a module itself defines of a kind, by name."""
    own = [v for v in vars(module).values() if getattr(v, "__module__", None) == module.__name__]
    named = {naming(value): value for value in own}
    return {name: value for name, value in named.items() if name is not None}


def file_module(kind: Kind, path: Path) -> ModuleType:
    """Return the module of a file as it is now, running it if this process has not yet.

    Raises:
        PluginError: It cannot be read or imported.
    """
    return _file_module(kind, file_code(path).sha256, path)


def sources(kind: Kind, name: str, identity: PluginIdentity, path: Path | None) -> dict[str, Path]:
    """Return the Python sources of a plug-in by module name, for digests of single functions.

    Raises:
        PluginError: The code is not at hand, or a file is not the one that was listed.
    """
    if identity.distribution is None:
        place = _at_hand(kind, identity.sha256, path)
        if f"{_PREFIX}{identity.sha256}" not in sys.modules:  # what runs was compared before
            listed_source(place, identity.sha256)
        return {f"plugin.{kind}": place}
    point, _ = _entry_point(kind, name, identity.distribution)
    root, files = _package(point.module)
    return {
        ".".join(file.relative_to(root).with_suffix("").parts): file
        for file in files
        if file.suffix == ".py"
    }


def _at_hand(kind: Kind, sha256: str, path: Path | None) -> Path:
    if path is None:
        raise PluginError(
            f"the file of the {kind} plug-in {sha256[:16]}… is not at hand",
            "Give its place beside the sha256, as path: my_plugin.py.",
        )
    return path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PluginError(
            f"{path} cannot be read: {error.strerror}",
            "A plug-in's path is relative to the file of its recipe.",
        ) from error


def listed_source(path: Path, sha256: str) -> bytes:
    """Return the source of a plug-in's file, after comparing it with what a recipe lists.

    Raises:
        PluginError: It cannot be read, or is another one.
    """
    source = _read(path)
    found = hashlib.sha256(source).hexdigest()
    if found != sha256:
        raise PluginError(
            f"{path} is not the code that the recipe lists: its sha256 is another one",
            f"If you changed it on purpose, write sha256: {found}",
        )
    return source


def _file_module(kind: Kind, sha256: str, path: Path | None) -> ModuleType:
    name = f"{_PREFIX}{sha256}"
    if name in sys.modules:
        return sys.modules[name]
    place = _at_hand(kind, sha256, path)
    source = listed_source(place, sha256)
    module = ModuleType(name)
    module.__file__ = str(place)
    sys.modules[name] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(source, str(place), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(f"{place}{_line(error, str(place))}", error) from error
    return module


def _line(error: BaseException, place: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == place:
        return f":{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == place]
    return f":{lines[-1]}" if lines else ""


def _import_failed(place: str, error: BaseException) -> PluginError:
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    words = f"{type(error).__name__}: {reason}".splitlines()[0]
    return PluginError(
        f"{place}: cannot be imported: {words}",
        "Mend it; a plug-in may import core and installed packages, but no file beside it.",
    )


def _entry_point(kind: Kind, name: str, distribution: str) -> tuple[metadata.EntryPoint, str]:
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError as error:
        raise PluginError(
            f"distribution {distribution!r} is not installed",
            f"pip install it, or correct {kind}'s plugin.distribution.",
        ) from error
    points = {point.name: point for point in found.entry_points if point.group == GROUPS[kind]}
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise PluginError(
            f"distribution {distribution} has no entry point {name!r} in group {GROUPS[kind]}",
            f"Its entry points there: {known}.",
        )
    return points[name], found.version


@lru_cache(maxsize=64)
def _package_digest(module: str) -> str:
    # Once per process, like the import itself.
    root, files = _package(module)
    lines = [
        f"{file.relative_to(root).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in files
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _package(module: str) -> tuple[Path, list[Path]]:
    """Return the directory that holds a top-level package, and the package's files."""
    top = module.partition(".")[0]
    spec = find_spec(top)  # of a top-level name this imports nothing
    if spec is None or spec.origin is None:
        raise PluginError(
            f"the package {top!r} of an entry point cannot be found",
            "Install its distribution again.",
        )
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return origin.parent, [origin]
    return origin.parents[1], sorted(_files_below(origin.parent))


def _files_below(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _installed_objects(
    kind: Kind, name: str, identity: PluginIdentity, naming: Naming
) -> dict[str, Any]:
    assert identity.distribution is not None
    found = installed_code(kind, name, identity.distribution)
    if (found.sha256, found.version) != (identity.sha256, identity.version):
        raise PluginError(
            f"distribution {identity.distribution} is not the code that the recipe lists",
            f"If that is on purpose, write version: '{found.version}' and sha256: {found.sha256}",
        )
    point, _ = _entry_point(kind, name, identity.distribution)
    try:
        value = point.load()
    except (Exception, SystemExit) as error:
        raise _import_failed(f"entry point {point.value}", error) from error
    own = naming(value)
    return {} if own is None else {own: value}
