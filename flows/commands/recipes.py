"""``opd recipes``: the recipes of a directory, each with the first line of its comment."""

from pathlib import Path

from core.errors import InputError


def list_recipes(directory: Path) -> str:
    """Return one line per recipe: its path and what it says of itself.

    Raises:
        InputError: There is no such directory, or no recipe in it.
    """
    paths = sorted(directory.rglob("*.yaml"))
    if not paths:
        raise InputError(
            f"{directory} holds no recipes", "Run this in the directory that holds recipes/."
        )
    width = max(len(str(path)) for path in paths)
    return "\n".join(f"{path!s:<{width}}  {_first_comment(path)}" for path in paths)


def _first_comment(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            return line.lstrip("# ").strip()
    return ""
