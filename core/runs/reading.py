"""A run directory as its readers see it: from its own files alone, wherever it was copied to."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from core.artifacts.codec import parse_strict, read_json, read_jsonl
from core.artifacts.locking import locked_if_free
from core.errors import InputError, StoreError
from core.recipe.loading import load
from core.recipe.recipe import Recipe
from core.runs import layout
from core.runs.local import read_local
from core.runs.manifest import Manifest, Status, load_manifest
from core.runs.placing import lock_file
from core.trajectory.io import parse_trajectory
from core.trajectory.trajectory import Trajectory

Json = dict[str, Any]


class RunDirectory:
    """One run; made by :func:`open_run`."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def recipe(self) -> Recipe:
        """Return what was computed: word for word where this machine knows it.

        Raises:
            InputError: A file is missing or damaged.
        """
        local = read_local(self.path)
        return load(self.path / layout.RESOLVED).recipe if local is None else local.recipe

    def metrics(self) -> list[Json]:
        """Return the rows of every optimizer step, cycle and evaluation.

        Raises:
            StoreError: The file is missing or damaged.
        """
        return read_jsonl(self.path / layout.METRICS)

    def evaluations(self) -> list[Json]:
        """Return every evaluation, in the order of the run.

        Raises:
            StoreError: The file is missing or damaged.
        """
        return read_json(self.path / layout.EVALUATIONS)["evaluations"]

    def token_rows(self) -> list[Json]:
        """Return what student and teacher thought of single tokens of the last cycle.

        Raises:
            StoreError: The file is damaged.
        """
        path = self.path / layout.TOKEN_ANALYSIS
        return read_jsonl(path) if path.exists() else []

    def trajectories(
        self, name: str = layout.TRAJECTORIES, only: Collection[str] | None = None
    ) -> Iterator[Trajectory]:
        """Yield the episodes of a file, each checked as it is read.

        Args:
            name: ``trajectories.jsonl`` or ``eval_trajectories.jsonl``.
            only: Ids that are wanted; None for all.

        Raises:
            TrajectoryError: A row disagrees with itself.
            InputError: The file cannot be read.
        """
        path = self.path / name
        for number, line in enumerate(_lines(path), start=1):
            if only is None or _id(line) in only:
                yield parse_trajectory(line, f"{path}, row {number}")


def open_run(directory: Path) -> RunDirectory:
    """Open a run directory whose files are all in place.

    Raises:
        InputError: It is no run directory, or its files are not there yet.
    """
    manifest = load_manifest(directory)
    if not manifest.files:
        raise InputError(
            f"{directory} is no whole run directory: the run is {status_of(directory, manifest)}",
            "Wait for it, or run its recipe again: what was finished is kept.",
        )
    return RunDirectory(directory, manifest)


def status_of(directory: Path, manifest: Manifest) -> Status:
    """Return how a run stands: one that says it runs and has no owner any more was interrupted."""
    if manifest.status not in ("ready", "running") or _has_owner(directory):
        return manifest.status
    return "interrupted"


def _has_owner(directory: Path) -> bool:
    lock = lock_file(directory.absolute())
    if not lock.exists():
        return False
    try:
        with locked_if_free(lock, str(directory)) as free:
            return not free
    except StoreError:  # a copy on a medium that cannot be written: nobody runs it there
        return False


def _lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", "Run the recipe again to remake it."
        ) from error
    # Only "\n" ends a row: text may hold the other line separators of Unicode.
    return [line for line in data.split(b"\n") if line]


def _id(line: bytes) -> str | None:
    try:
        return parse_strict(line.decode()).get("trajectory_id")
    except (ValueError, AttributeError, RecursionError):
        return None
