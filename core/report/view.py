"""A run directory: hard links to what a person looks for, to be copied and read alone."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.errors import StoreError
from core.recipe.runtime import Runtime

LINKED = {
    "report": ("report.html", "report.json"),
    "evaluation": ("eval.json", "eval_trajectories.jsonl"),
    "rollouts": ("trajectories.jsonl", "stats.json"),
    "student": ("metrics.jsonl", "state.json", "model.json"),
}
"""Files of each kind of artifact that a view shows."""


def assemble_view(
    store: Store, parts: Mapping[str, ArtifactRef], report: ArtifactRef | None, runtime: Runtime
) -> Path:
    """Make or refresh the directory of a run and return it.

    The store stays the only truth: a view may be deleted, and is made again by the next run.

    Args:
        store: Holds the artifacts.
        parts: Artifacts of the run by role.
        report: Its report, if it has one.
        runtime: Says where views lie and what the run is called.

    Raises:
        StoreError: The directory cannot be written.
    """
    directory = runtime.runs / (runtime.run_id or runtime.run_name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if report is not None:
            _link_all(store.path(report), directory, LINKED["report"])
        for role, ref in parts.items():
            _link_all(store.path(ref), directory / role, LINKED.get(ref.kind, ()))
        index = {role: ref.model_dump() for role, ref in parts.items()}
        (directory / "artifacts.json").write_text(json.dumps(index, indent=1, sort_keys=True))
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be written: {error.strerror}",
            "Set run.output_dir to a directory that can be written.",
        ) from error
    return directory


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
