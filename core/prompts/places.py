"""Files of prompts by content: a recipe names places, a key names digests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from core.artifacts.file_stamps import file_digests
from core.errors import PromptFileError

DIGEST_PREFIX = "sha256:"
"""Starts a file name that stands for bytes; the runtime knows where they lie."""


@dataclass(frozen=True)
class LocatedFile:
    """A file of prompts found on this machine.

    Attributes:
        name: What a key calls it: ``sha256:`` and the hash of its content.
        path: Where it is, absolute.
    """

    name: str
    path: Path

    @property
    def digest(self) -> str:
        """The SHA-256 of its content."""
        return self.name.removeprefix(DIGEST_PREFIX)


def locate_file(name: str, stamps: Path | None = None) -> LocatedFile:
    """Find a file and digest it.

    Args:
        name: A path.
        stamps: Directory of stat stamps; None hashes anew.

    Raises:
        PromptFileError: It is no file, or cannot be read.
    """
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise PromptFileError(f"the file of prompts {name} {what}", _similar(path))
    try:
        digest = file_digests({path.name: path}, path, stamps)[path.name]
    except OSError as error:
        raise PromptFileError(
            f"the file of prompts {name} cannot be read: {error.strerror}",
            "Check the file's permissions.",
        ) from error
    return LocatedFile(f"{DIGEST_PREFIX}{digest}", path)


def find_files(names: Sequence[str], places: Mapping[str, Path]) -> list[Path]:
    """Return where files are.

    Args:
        names: As ``locate_file`` calls them, or paths.
        places: Place of each digest.

    Raises:
        PromptFileError: The place of a digest is not known.
    """
    return [_find(name, places) for name in names]


def _find(name: str, places: Mapping[str, Path]) -> Path:
    if not name.startswith(DIGEST_PREFIX):
        return Path(name)
    digest = name.removeprefix(DIGEST_PREFIX)
    if digest not in places:
        raise PromptFileError(
            f"the file of prompts with digest {digest[:16]}… is not at hand",
            "Run the recipe that names its path, so that it can be found again.",
        )
    return places[digest]


def _similar(path: Path) -> str:
    beside = [child.name for child in path.parent.glob("*") if child.is_file()]
    close = get_close_matches(path.name, beside, n=1)
    if path.is_dir():
        return "Name the files in it."
    return f"Did you mean {path.parent / close[0]}?" if close else "Check the path."
