"""A run directory: hard links to what a person looks for, to be copied and read alone."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.errors import InputError, StoreError
from core.recipe.loading import to_yaml
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime

INDEX, RECIPE = "artifacts.json", "recipe.yaml"

LINKED = {
    "report": ("report.html", "report.json"),
    "evaluation": ("eval.json", "eval_trajectories.jsonl"),
    "rollouts": ("trajectories.jsonl", "stats.json"),
    "student": ("metrics.jsonl", "state.json", "model.json"),
}
"""Files of each kind of artifact that a view shows."""


def assemble_view(
    store: Store,
    parts: Mapping[str, ArtifactRef],
    student: ArtifactRef,
    report: ArtifactRef | None,
    recipe: Recipe,
    runtime: Runtime,
) -> Path:
    """Make or refresh the directory of a run and return it.

    The store stays the only truth: a view may be deleted, and is made again by the next run.

    Args:
        store: Holds the artifacts.
        parts: Artifacts of the run by role.
        student: Its newest state.
        report: Its report, if it has one.
        recipe: What was computed.
        runtime: Says where views lie and what the run is called.

    Raises:
        StoreError: The directory cannot be written.
    """
    directory = runtime.runs / (runtime.run_id or runtime.run_name)
    index = {
        "store": str(store.root),
        "student": student.model_dump(),
        "parts": {role: ref.model_dump() for role, ref in parts.items()},
        "model_paths": {digest: str(path) for digest, path in runtime.model_paths.items()},
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / RECIPE).write_text(to_yaml(recipe), encoding="utf-8")
        (directory / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True))
        if report is not None:
            _link_all(store.path(report), directory, LINKED["report"])
        for role, ref in parts.items():
            _link_all(store.path(ref), directory / role, LINKED.get(ref.kind, ()))
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be written: {error.strerror}",
            "Set run.output_dir to a directory that can be written.",
        ) from error
    return directory


def read_index(directory: Path) -> dict[str, Any]:
    """Return what a view says about its run.

    Raises:
        InputError: It is no view of a run.
    """
    try:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        return {"store": index["store"], **index}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{directory} is no run directory: {INDEX} cannot be read",
            "Give a directory that `opd run` printed, such as runs/toy.",
        ) from error


def _link_all(source: Path, target: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if (source / name).exists():
            target.mkdir(parents=True, exist_ok=True)
            _link(source / name, target / name)


def _link(source: Path, target: Path) -> None:
    if target.exists():
        if target.samefile(source):
            return
        target.unlink()
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
