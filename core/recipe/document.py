"""A submitted recipe before it means anything: nested values, and where each came from."""

from typing import Any

from core.errors import RecipeError

KeyPath = tuple[str, ...]

_MISSING = object()


class Document:
    """Nested values with places.

    Args:
        origin: Name of the file, for errors.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.values: dict[str, Any] = {}
        self._places: dict[KeyPath, str] = {}
        self._labels: dict[KeyPath, str] = {}

    def get(self, path: KeyPath, default: Any = None) -> Any:
        """Return the value at ``path``, or ``default`` where there is none."""
        value: Any = self.values
        for part in path:
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def has(self, path: KeyPath) -> bool:
        """Return whether something was written at ``path``."""
        return self.get(path, _MISSING) is not _MISSING

    def set(self, path: KeyPath, value: Any, place: str) -> None:
        """Write a value and remember where it came from; sections on the way are created.

        Raises:
            RecipeError: Something on the way is a value and not a section.
        """
        section = self.values
        for depth, part in enumerate(path[:-1], start=1):
            if section.get(part) is None:
                section[part] = {}
            section = section[part]
            if not isinstance(section, dict):
                raise RecipeError(
                    f"{self.place(path[:depth])}: {'.'.join(path[:depth])} is a value, "
                    f"and {'.'.join(path)} would be a key of it",
                    "Write a section as a mapping of its keys.",
                )
        section[path[-1]] = value
        for known in [known for known in self._places if known[: len(path)] == path]:
            del self._places[known]
        self.mark(path, place)

    def mark(self, path: KeyPath, place: str) -> None:
        """Remember where the value at ``path`` was written."""
        self._places[path] = place

    def move(self, path: KeyPath, target: KeyPath) -> None:
        """Move a value; errors go on calling it by the name under which it was submitted.

        Raises:
            RecipeError: Both names were given.
        """
        place, submitted = self.place(path), ".".join(path)
        if self.has(target):
            raise RecipeError(
                f"{place}: {submitted} and {'.'.join(target)} are one setting, given twice",
                "Keep one of the two.",
            )
        self.set(target, self.pop(path), place)
        self.rename(target, submitted)

    def rename(self, path: KeyPath, submitted: str) -> None:
        """Remember the dotted key under which ``path`` was submitted."""
        self._labels[path] = submitted

    def pop(self, path: KeyPath) -> Any:
        """Remove and return a value, together with the sections that this leaves empty."""
        section = self.get(path[:-1], self.values)
        value = section.pop(path[-1])
        if not section and len(path) > 1:
            self.pop(path[:-1])
        return value

    def place(self, path: KeyPath) -> str:
        """Return ``file:line`` or the override that wrote ``path`` or the section around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._places:
                return self._places[path[:length]]
        return self.origin

    def label(self, path: KeyPath) -> str:
        """Return the dotted key under which ``path`` was submitted."""
        return self._labels.get(path, ".".join(path))
