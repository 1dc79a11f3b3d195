"""A run directory: hard links to what a person looks for, to be copied and read alone."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, TypeAdapter, ValidationError

from core.artifacts.filesystem import replace_file
from core.artifacts.record import ArtifactRef, RelativePath
from core.artifacts.store import Store
from core.errors import InputError, StoreError
from core.recipe.loading import to_yaml
from core.recipe.recipe import Recipe
from core.recipe.runtime import PluginFiles, Runtime

INDEX, RECIPE = "artifacts.json", "recipe.yaml"

LINKED = {
    "report": ("report.html", "report.json"),
    "evaluation": ("eval.json", "eval_trajectories.jsonl"),
    "rollouts": ("trajectories.jsonl", "stats.json"),
    "student": (
        "metrics.jsonl",
        "state.json",
        "model.json",
        "canaries.json",
        "watch.json",
        "budget.json",
    ),
    "targets": ("selection.json",),
    "qualification": ("qualification.json",),
    "dataset": ("trajectories.jsonl", "stats.json", "manifest.json", "selection.json"),
}
"""Files of each kind of artifact that a view shows."""

_UNPLAIN = re.compile(r"[^A-Za-z0-9_.+=-]+")
_PATHS = TypeAdapter(list[RelativePath])


class RunIndex(BaseModel):
    """What a view says about its run."""

    store: str
    """Root of the store that holds the artifacts."""
    student: ArtifactRef
    """The newest state."""
    parts: dict[str, ArtifactRef]
    """Artifacts of the run by role."""
    model_paths: dict[str, Path]
    """Directory of each pretrained model, by the digest of its files."""
    plugins: PluginFiles = PluginFiles()
    """Files of plug-ins."""
    notes: str = ""
    """Free text of the run's owner."""
    tags: tuple[str, ...] = ()
    """Free labels."""
    files: list[RelativePath]
    """What the view put beside itself and the recipe; only these are ever removed."""


def directory_name(recipe: Recipe, runtime: Runtime) -> str:
    """Return what the directory of a run is called: its id, or its label and seed.

    A label may hold any character; those that a directory's name should not become ``-``.
    """
    if runtime.run_id is not None:
        return runtime.run_id
    label = _UNPLAIN.sub("-", runtime.run_name).strip(".-") or "run"
    return f"{label}-seed{recipe.run.seed}"


def assemble_view(
    store: Store,
    parts: Mapping[str, ArtifactRef],
    student: ArtifactRef,
    report: ArtifactRef | None,
    recipe: Recipe,
    runtime: Runtime,
) -> Path:
    """Make or refresh the directory of a run and return it.

    The store stays the only truth: a view may be deleted, and is made again by the next run. Files
    of the run that was shown there before go away; files that no view put there stay. While files
    change, the index names no run, so a view that was cut off is not taken for one.

    Args:
        store: Holds the artifacts.
        parts: Artifacts of the run by role.
        student: Its newest state.
        report: Its report, if it has one.
        recipe: What was computed.
        runtime: Says where views lie and what the run is called.

    Raises:
        StoreError: The directory cannot be written, or its index is not a view's.
    """
    directory = runtime.runs / directory_name(recipe, runtime)
    sources = dict(_sources(store, parts, report))
    index = RunIndex(
        store=str(store.root),
        student=student,
        parts=dict(parts),
        model_paths=runtime.model_paths,
        plugins=runtime.plugins,
        notes=runtime.notes,
        tags=runtime.tags,
        files=sorted(sources),
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        before = _listed(directory)
        _write(directory / INDEX, json.dumps({"files": sorted(before | sources.keys())}))
        _remove(directory, before - sources.keys())
        for name, source in sources.items():
            (directory / name).parent.mkdir(exist_ok=True)
            _link(source, directory / name)
        _write(directory / RECIPE, to_yaml(recipe))
        _write(directory / INDEX, json.dumps(index.model_dump(mode="json"), indent=1))
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be written: {error.strerror}",
            "Set run.output_dir to a directory that can be written.",
        ) from error
    return directory


def read_index(directory: Path) -> RunIndex:
    """Return what a view says about its run.

    Raises:
        InputError: It is no view of a run, or one that was cut off.
    """
    try:
        return RunIndex.model_validate_json((directory / INDEX).read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            f"{directory} is no run directory: {INDEX} cannot be used: {_reason(error)}",
            "Give a directory that `opd run` printed, such as runs/toy-seed1234, or run it again.",
        ) from error


def _reason(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or "cannot be read"
    first = error.errors()[0]
    return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))


def _sources(
    store: Store, parts: Mapping[str, ArtifactRef], report: ArtifactRef | None
) -> Iterator[tuple[str, Path]]:
    """Yield the place of each file in the view, and the file."""
    shown = [(f"{role}/", ref) for role, ref in parts.items()]
    for prefix, ref in [*shown, *([("", report)] if report is not None else [])]:
        for name in LINKED.get(ref.kind, ()):
            if (store.path(ref) / name).exists():
                yield prefix + name, store.path(ref) / name


def _listed(directory: Path) -> set[str]:
    """Return the files that an older view put into a directory."""
    if not (directory / INDEX).exists():
        return set()
    try:
        return set(_PATHS.validate_python(json.loads((directory / INDEX).read_bytes())["files"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{directory / INDEX} does not say which files are the view's: none was touched",
            "Remove that directory, or choose another with run.run_id=NAME.",
        ) from error


def _write(path: Path, text: str) -> None:
    replace_file(path, [text.encode(), b"\n"])


def _remove(directory: Path, names: set[str]) -> None:
    for name in names:
        (directory / name).unlink(missing_ok=True)
    for parent in {PurePosixPath(name).parent for name in names}:
        place = directory / parent
        if place != directory and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _link(source: Path, target: Path) -> None:
    if target.exists():
        if target.samefile(source):
            return
        target.unlink()
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
