"""Goes over one run directory: every byte, and what its files say of each other.

Needs neither torch nor the store, so a copy can be checked wherever it is.
"""

from collections.abc import Iterator
from pathlib import Path

from core.artifacts import contents
from core.artifacts.filesystem import entries, status
from core.artifacts.verification import Finding
from core.errors import CacheError, InputError, StoreError, TrajectoryError
from core.runs import layout
from core.runs.manifest import Manifest, load_manifest
from core.runs.reading import RunDirectory
from core.runs.targets import read_index
from core.trajectory.trajectory import Trajectory

REMAKE = "Run the recipe again to remake it, or copy it again from where it came."


def verify_run(directory: Path) -> tuple[Manifest, list[Finding]]:
    """Check a run directory whose files are all in place.

    Every file is hashed; every episode is read again, which derives its masks from its spans;
    token rows, targets, evaluations and checkpoints must speak of what is there.

    Raises:
        InputError: It is no run directory, or its manifest was altered.
    """
    manifest = load_manifest(directory)
    findings = list(_files(directory, manifest))
    if not findings:  # what was altered need not be understood
        run = RunDirectory(directory, manifest)
        findings += [*_episodes(run), *_targets(run)]
    return manifest, findings


def _files(directory: Path, manifest: Manifest) -> Iterator[Finding]:
    for name, entry in manifest.files.items():
        path = directory / name
        found = contents.strange_part(directory, path)
        if found is None and status(path) is None:
            found = "missing"
        if found is None and contents.hash_file(path) != entry:
            found = "content was altered"
        if found is not None:
            yield Finding(name, found, REMAKE)
    for name in _owned_strangers(directory, manifest):
        yield Finding(name, "not in the manifest", "Remove it: the run did not put it there.")


def _owned_strangers(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield files in places where only the run itself puts any."""
    for area in (layout.CHECKPOINTS, layout.TARGETS):
        waiting = [directory / area]
        while waiting:
            for entry in entries(waiting.pop()):
                place = Path(entry.path)
                name = place.relative_to(directory).as_posix()
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(place)
                elif name not in manifest.files:
                    yield name


def _episodes(run: RunDirectory) -> Iterator[Finding]:
    """Read every episode again; ids of token rows must be those of training episodes."""
    known: dict[str, dict[int, int]] = {}
    for name in (layout.TRAJECTORIES, layout.EVAL_TRAJECTORIES):
        if name not in run.manifest.files:
            continue
        try:
            for row in run.trajectories(name):
                if name == layout.TRAJECTORIES:
                    known[row.trajectory_id] = _sampled(row)
        except (TrajectoryError, InputError) as error:
            yield Finding(name, error.message, REMAKE)
    try:
        rows = run.token_rows()
    except StoreError as error:
        yield Finding(layout.TOKEN_ANALYSIS, error.message, REMAKE)
        return
    for number, row in enumerate(rows, start=1):
        what = _misplaced(known.get(row.get("trajectory_id", "")), row)
        if what is not None:
            yield Finding(layout.TOKEN_ANALYSIS, f"row {number}: {what}", REMAKE)
            return


def _sampled(episode: Trajectory) -> dict[int, int]:
    """Return the tokens that the student sampled, by position."""
    return {position: episode.token_ids[position] for position in episode.target_positions()}


def _misplaced(sampled: dict[int, int] | None, row: dict[str, object]) -> str | None:
    """Say why a token row cannot be about a token that the student sampled."""
    name, position = row.get("trajectory_id"), row.get("target_position")
    if sampled is None:
        return f"{name} is no training episode of this run"
    if not isinstance(position, int) or position not in sampled:
        return f"position {position} of {name} is no sampled token"
    if sampled[position] != row.get("token_id"):
        return f"position {position} of {name} holds another token"
    return None


def _targets(run: RunDirectory) -> Iterator[Finding]:
    if layout.TARGETS_INDEX not in run.manifest.files:
        return
    try:
        index = read_index(run.path)
    except CacheError as error:
        yield Finding(layout.TARGETS_INDEX, error.message, REMAKE)
        return
    for shard in index.shards:
        entry = run.manifest.files.get(f"{layout.TARGETS}/{shard.file}")
        if entry is None or (entry.sha256, entry.size) != (shard.sha256, shard.size):
            yield Finding(layout.TARGETS_INDEX, f"{shard.file} is another file", REMAKE)
