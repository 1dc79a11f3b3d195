"""From YAML and ``key=value`` overrides to a recipe, a runtime and notes, or one clear refusal."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from core.errors import RecipeError
from core.recipe.document import Document
from core.recipe.migration import migrate
from core.recipe.notes import notes
from core.recipe.overrides import apply_overrides, move_execution_keys
from core.recipe.plugin_keys import settle_plugins
from core.recipe.problems import Problem, refuse
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.syntax import parse_document, write_document
from core.recipe.validation import examine

RUN_NAME = ("runtime", "run_name")
MAX_NAME_CHARS = 120


@dataclass(frozen=True)
class Loaded:
    """An accepted recipe."""

    recipe: Recipe
    """Identity."""
    runtime: Runtime
    """Execution."""
    notes: list[str]
    """Keys without effect and other things worth printing."""
    source: bytes
    """The file, byte for byte, without the overrides."""


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe file.

    Args:
        path: YAML file.
        overrides: ``key=value`` pairs with dotted keys, e.g. ``train.cycles=3``.

    Raises:
        RecipeError: With file, line, key, value and what to do.
    """
    return load(path, overrides).recipe


def load(path: str | Path, overrides: Iterable[str] = ()) -> Loaded:
    """Read a recipe file together with its execution settings.

    Args:
        path: YAML file.
        overrides: ``key=value`` pairs with dotted keys; ``runtime.device=cpu`` and the like set
            execution.

    Raises:
        RecipeError: With file, line, key, value and what to do.
    """
    source = _read(Path(path))
    return load_text(_decode(source, str(path)), overrides, origin=str(path), source=source)


def load_text(
    text: str, overrides: Iterable[str] = (), *, origin: str = "<text>", source: bytes | None = None
) -> Loaded:
    """Read a recipe from a string.

    Args:
        text: YAML.
        overrides: As for ``load``.
        origin: Name for errors; its stem names a run that has no name.
        source: The bytes behind ``text``.

    Raises:
        RecipeError: With origin, line, key, value and what to do.
    """
    document = parse_document(text, origin)
    if describes_benchmark(document):
        raise RecipeError(
            f"{origin}: is a benchmark, and this takes a recipe", f"Run `opd benchmark {origin}`."
        )
    moved = move_execution_keys(document)
    moved = list(dict.fromkeys([*moved, *apply_overrides(document, overrides)]))
    if not document.has(RUN_NAME):
        name = "opd" if source is None else Path(origin).stem
        document.set(RUN_NAME, name[:MAX_NAME_CHARS], origin)
    unlisted = settle_plugins(document, Path(origin).parent if source is not None else Path())
    if unlisted:
        raise refuse(unlisted, document)
    migrated = list(migrate(document))
    recipe, runtime, found = examine(document)
    problems = _one_per_key(migrated + found)
    if recipe is None or runtime is None or problems:
        raise refuse(problems, document)
    return Loaded(
        recipe=recipe,
        runtime=runtime,
        notes=notes(recipe, document, moved),
        source=text.encode() if source is None else source,
    )


def describes_benchmark(document: Document) -> bool:
    """Return whether a document has the keys of a benchmark, and not those of a recipe."""
    named = any(key in document.values for key in ("base", "arms", "allowed_differences"))
    return named and not document.has(("models",))


def to_yaml(recipe: Recipe) -> str:
    """Return the whole recipe, defaults written out; ``from_yaml`` reads it back equal."""
    return write_document(recipe.model_dump(mode="json"))


def from_yaml(text: str) -> Recipe:
    """Return the recipe in a string.

    Raises:
        RecipeError: With line, key, value and what to do.
    """
    return load_text(text).recipe


def _one_per_key(problems: list[Problem]) -> list[Problem]:
    """Keep the first problem of each key."""
    kept = {each.path: each for each in reversed(problems)}
    return [each for each in problems if kept.get(each.path) is each]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such recipe", _similar(path)) from None
    except IsADirectoryError:
        raise RecipeError(f"{path}: is a directory", _listing(path)) from None
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}", "Check the file's permissions.") from error


def _decode(source: bytes, origin: str) -> str:
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise RecipeError(f"{origin}:{line}: not UTF-8 text", "Save the file as UTF-8.") from None


def _similar(path: Path) -> str:
    candidates = [*Path("recipes").rglob("*.yaml"), *path.parent.glob("*.y*ml")]
    recipes = (one for one in candidates if one.parent.name != "benchmarks")
    names = {candidate.name: str(candidate) for candidate in recipes}
    close = get_close_matches(path.with_suffix(".yaml").name, names, n=1)
    return f"Did you mean {names[close[0]]}?" if close else "`opd recipes` lists those that exist."


def _listing(path: Path) -> str:
    inside = sorted(str(child) for child in path.glob("*.yaml"))
    return f"Name one of its files: {', '.join(inside[:8])}." if inside else "Name a YAML file."
