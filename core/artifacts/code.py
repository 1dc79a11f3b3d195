"""Which sources a task's result was computed by, and which functions changed since.

Sources are read, never imported: a digest is the same with and without torch. Comments,
docstrings, formatting and the order of definitions do not count. Code is not part of a key; the
record keeps a digest per function so that a change can be named.
"""

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from core.errors import StoreError

ROOT = Path(__file__).parents[2]
"""Directory that holds the packages ``core``, ``tasks`` and ``flows``."""

FOLLOWED = "core"
"""Imports are followed inside this package only: tasks and flows say order, not meaning."""

_TYPING_ONLY = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
_HEX_DIGITS = 16  # of a function's digest: enough to notice a change, small in every record


class CodeDigest(BaseModel):
    """Hash of the sources behind an artifact, whole and per function."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    digest: str
    """Hash over all of ``functions``."""
    functions: dict[str, str]
    """Qualified name of a function, class or module to the hash of its own statements."""


@dataclass(frozen=True)
class _Module:
    """What one source file contributes: its own digests and the modules it imports."""

    functions: Mapping[str, str]
    imports: tuple[str, ...]


def code_digest(
    module: str, root: Path = ROOT, plugins: Mapping[str, Path] | None = None
) -> CodeDigest:
    """Digest a module and everything in ``core`` that it imports, directly or not.

    Imports inside functions count; those under ``TYPE_CHECKING`` do not. A string that is the
    dotted name of a module of ``core`` counts as an import, since registries load by name.

    Args:
        module: Dotted name, e.g. ``tasks.update_student``.
        root: Directory that holds the packages.
        plugins: Sources outside the packages that are run too, by module name.

    Raises:
        StoreError: There is no such module, or a source in reach is not valid Python.
    """
    if _locate(module, root) is None:
        raise StoreError(
            f"{module}: no such module under {root}", "Check the spelling of the dotted name."
        )
    functions: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [module]
    for name, path in (plugins or {}).items():
        found = _source(name, path, root)
        functions.update(found.functions)
        waiting.extend(found.imports)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found = _module(name, root)
        functions.update(found.functions)
        waiting.extend(found.imports)
    ordered = dict(sorted(functions.items()))
    whole = "\n".join(f"{name} {digest}" for name, digest in ordered.items())
    return CodeDigest(digest=hashlib.sha256(whole.encode()).hexdigest(), functions=ordered)


def changed_functions(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Name what was changed, added or removed between two sets of function digests, sorted."""
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _locate(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _module(name: str, root: Path) -> _Module:
    path = _locate(name, root)
    if path is None:
        return _Module({}, ())
    return _source(name, path, root)


def _source(name: str, path: Path, root: Path) -> _Module:
    stat = path.stat()
    return _parse(name, path, root, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _parse(name: str, path: Path, root: Path, _mtime_ns: int, _size: int) -> _Module:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise StoreError(
            f"{path}:{error.lineno}: not valid Python", "Mend the source before running."
        ) from error
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports = sorted(_imports(tree, package, lambda module: _locate(module, root) is not None))
    texts: dict[str, str] = {}
    for qualified, text in _statements(name, tree):
        # One name may stand for several definitions, as a property's getter and setter do.
        texts[qualified] = texts.get(qualified, "") + text
    return _Module({name: _hash(text) for name, text in texts.items()}, tuple(imports))


def _imports(tree: ast.Module, package: str, exists: Callable[[str], bool]) -> set[str]:
    names: set[str] = set()
    for node in _runtime_nodes(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, package)
            names.add(source)
            names.update(f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value.partition(":")[0])
    followed = (name for name in names if name.split(".")[0] == FOLLOWED and exists(name))
    return {parent for name in followed for parent in _with_parents(name)}


def _runtime_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(_runtime_children(node))


def _runtime_children(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in _TYPING_ONLY:
        return node.orelse
    return ast.iter_child_nodes(node)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: -(node.level - 1) or None]
    return ".".join([*parts, node.module] if node.module else parts)


def _with_parents(name: str) -> Iterator[str]:
    # Importing a.b.c also runs a/__init__.py and a/b/__init__.py.
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _statements(name: str, scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str]]:
    own: list[ast.stmt] = []
    for statement in _without_docstring(scope.body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{statement.name}", _normal(statement)
        elif isinstance(statement, ast.ClassDef):
            yield from _statements(f"{name}.{statement.name}", statement)
        else:
            own.append(statement)
    head = [] if isinstance(scope, ast.Module) else [scope.bases, scope.keywords]
    yield name, _normal([*head, own, getattr(scope, "decorator_list", [])])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HEX_DIGITS]


def _normal(node: object) -> str:
    """Write a syntax tree without positions and empty fields.

    Unlike ``ast.dump`` and ``ast.unparse`` the text is the same in every Python that parses the
    source alike: a new optional field of a node is empty for old sources.
    """
    if isinstance(node, list):
        return f"[{','.join(_normal(item) for item in node)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((field, getattr(node, field, None)) for field in node._fields)
    parts = (f"{field}={_normal(_bare(field, v))}" for field, v in fields if v not in (None, []))
    return f"{type(node).__name__}({','.join(parts)})"


def _bare(field: str, value: object) -> object:
    return _without_docstring(value) if field == "body" and isinstance(value, list) else value


def _without_docstring(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    # Any bare string statement is a docstring here: attribute docstrings follow a field.
    return [statement for statement in body if not _is_string(statement)]


def _is_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
