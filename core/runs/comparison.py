"""Where two runs part: the first step whose bytes differ, and within it the first token or number.

Everything is read from the two run directories; neither torch nor the store is needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from pydantic import BaseModel, ConfigDict

from core.artifacts.codec import read_json
from core.artifacts.explain import ABSENT, Difference, differences
from core.runs import layout
from core.runs.manifest import Manifest
from core.runs.reading import RunDirectory
from core.runs.weights import WeightDifference, compare_weights
from core.trajectory.trajectory import Trajectory

Json = dict[str, Any]

EPISODES = {"rollouts": layout.TRAJECTORIES, "evaluation": layout.EVAL_TRAJECTORIES}
"""Files of the episodes that a kind of artifact holds."""

NOTHING = "(nothing)"
"""Stands for a field that one run does not have."""

MEASURED = frozenset({"seconds", "rollout_tokens_per_second"})
"""Numbers that differ between any two runs: they are no result."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FieldDifference(_Row):
    """One field that differs."""

    field: str
    here: Any
    there: Any


class StepDifference(_Row):
    """A step that both runs took, with other bytes."""

    role: str
    """Of its artifact, e.g. ``rollouts_0003``."""
    task: str | None
    same_request: bool
    """Whether both asked for the same: then code, machine or chance changed the bytes."""
    details: tuple[str, ...]
    """What differs first inside, as far as the run directories hold it."""


class RunDifference(_Row):
    """What differs between two runs."""

    recipe: tuple[FieldDifference, ...]
    environment: tuple[FieldDifference, ...]
    steps: tuple[StepDifference, ...]
    """In the order of the run; all but the first may follow from the first."""
    equal_steps: int
    only_here: tuple[str, ...]
    """Roles that one run alone has."""
    only_there: tuple[str, ...]
    metrics: tuple[FieldDifference, ...]
    """The first row of metrics that differs."""
    success: tuple[FieldDifference, ...]
    """Held-out success by stage, where it differs."""
    weights: tuple[WeightDifference, ...] = ()
    """Distance of the trained weights, by checkpoint that both runs have."""

    @property
    def is_equal(self) -> bool:
        """Tell whether both runs hold the same results."""
        return not (self.steps or self.only_here or self.only_there)


def compare_runs(here: RunDirectory, there: RunDirectory) -> RunDifference:
    """Compare two runs.

    Raises:
        OpdError: A file of either cannot be read.
    """
    left, right = _artifacts(here.manifest), _artifacts(there.manifest)
    shared = [role for role in left if role in right]
    unequal = [role for role in shared if left[role][1] != right[role][1]]
    return RunDifference(
        recipe=_fields(_recipe(here), _recipe(there)),
        environment=_fields(*(read_json(run.path / layout.ENVIRONMENT) for run in (here, there))),
        steps=tuple(
            StepDifference(
                role=role,
                task=left[role][2],
                same_request=left[role][0] == right[role][0],
                details=tuple(_details(here, there, role)) if role == unequal[0] else (),
            )
            for role in unequal
        ),
        equal_steps=len(shared) - len(unequal),
        only_here=tuple(role for role in left if role not in right),
        only_there=tuple(role for role in right if role not in left),
        metrics=_first_metrics(here.metrics(), there.metrics()),
        success=_fields(*(_success(run) for run in (here, there))),
        weights=tuple(compare_weights(here, there)),
    )


def _artifacts(manifest: Manifest) -> dict[str, tuple[str, str, str | None]]:
    """Return key, digest and step of every artifact, in the order of the run."""
    inputs = {role: (ref.key, ref.digest, None) for role, ref in manifest.inputs.items()}
    steps = {
        role: (entry.ref.key, entry.ref.digest, entry.task)
        for role, entry in manifest.artifacts.items()
    }
    return {**inputs, **dict(sorted(steps.items(), key=lambda item: _order(item[0])))}


ORDER = ("qualification", "cold_start", "dataset", "rollouts", "targets", "student", "evaluation")
"""Kinds of artifact in the order in which one cycle makes them."""


def _order(role: str) -> tuple[int, int]:
    """Return the place of a role in a run: evaluation n is of the student after cycle n − 2."""
    kind, _, number = role.rpartition("_")
    if not (kind and number.isdigit()):
        return -1, ORDER.index(role) if role in ORDER else -1
    cycle = int(number) - 2 if kind == "evaluation" else int(number)
    return cycle, ORDER.index(kind) if kind in ORDER else len(ORDER)


def _recipe(run: RunDirectory) -> Json:
    return run.recipe().model_dump(mode="json")


def _success(run: RunDirectory) -> Json:
    path = run.path / layout.EVALUATIONS
    return read_json(path)["success"] if path.exists() else {}


def _fields(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[FieldDifference, ...]:
    return tuple(_field(each) for each in differences(here, there))


def _field(difference: Difference) -> FieldDifference:
    """Return a difference of what two runs hold, where nothing has a default any more."""
    here, there = (
        NOTHING if value is ABSENT else value for value in (difference.here, difference.there)
    )
    return FieldDifference(field=difference.path, here=here, there=there)


def _first_metrics(here: Sequence[Json], there: Sequence[Json]) -> tuple[FieldDifference, ...]:
    for number, pair in enumerate(zip_longest(here, there, fillvalue={}), start=1):
        left, right = ({k: v for k, v in row.items() if k not in MEASURED} for row in pair)
        found = _fields(left, right)
        if found:
            return (FieldDifference(field="row", here=number, there=number), *found)
    return ()


def _details(here: RunDirectory, there: RunDirectory, role: str) -> Iterator[str]:
    """Yield what differs first inside the artifacts of one role."""
    file = EPISODES.get(role.partition("_")[0])
    if file is not None:
        pairs = zip_longest(_episodes(here, file), _episodes(there, file))
        found = (what for left, right in pairs if (what := _episode_difference(left, right)))
        yield next(found, "the episodes are equal; what differs is in numbers about them")
    yield from _step_numbers(here, there, role)


def _episodes(run: RunDirectory, file: str) -> Iterator[Trajectory]:
    if file in run.manifest.files:
        yield from run.trajectories(file)


def _episode_difference(left: Trajectory | None, right: Trajectory | None) -> str | None:
    """Name the first thing in which two episodes differ, or None where they are equal."""
    if left == right:
        return None
    if left is None or right is None:
        one = left or right
        return f"episode {one.trajectory_id if one else '?'}: only one run has it"
    if left.trajectory_id != right.trajectory_id:
        return f"episode {left.trajectory_id}: the other run has {right.trajectory_id} there"
    where = f"episode {left.trajectory_id} ({left.task_id})"
    place = _first_unequal(left.token_ids, right.token_ids)
    if place is not None:
        return (
            f"{where}: token {place}, {_token(left, place)} here and {_token(right, place)} there"
        )
    place = _first_unequal(left.logprobs, right.logprobs)
    if place is not None:
        pair = [row.logprobs[place] for row in (left, right)]
        position = left.target_positions()[place]
        return (
            f"{where}: log-probability of token {position}, {pair[0]!r} here and {pair[1]!r} there"
        )
    fields = differences(left.model_dump(mode="json"), right.model_dump(mode="json"))
    return f"{where}: {fields[0].path}, {fields[0].here!r} here and {fields[0].there!r} there"


def _first_unequal(left: Sequence[object], right: Sequence[object]) -> int | None:
    """Return the first index at which two sequences differ, or at which one ends."""
    if left == right:
        return None
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


def _token(episode: Trajectory, place: int) -> str:
    """Describe a token: its id, whose it is, and in which turn."""
    if place >= len(episode.token_ids):
        return "the end"
    span = next(span for span in episode.spans if span.start <= place < span.end)
    author = "sampled" if span.is_model else "not the student's"
    return f"id {episode.token_ids[place]} ({span.span_type.value}, {author})"


def _step_numbers(here: RunDirectory, there: RunDirectory, role: str) -> Iterator[str]:
    """Yield the first row of numbers of a step in which two runs differ."""
    rows = [[row for row in run.metrics() if row.get("artifact") == role] for run in (here, there)]
    found = _first_metrics(rows[0], rows[1])
    if found:
        shown = [f"{one.field} {one.here!r} here and {one.there!r} there" for one in found[1:6]]
        yield f"row {found[0].here} of its numbers: {'; '.join(shown)}"
