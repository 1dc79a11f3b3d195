"""A data set that another run froze, found by its content and checked before a model is opened."""

from typing import Any

from core.artifacts.explain import differences
from core.artifacts.external import copy_external, read_external
from core.artifacts.key import encode
from core.artifacts.record import ArtifactRef, Record
from core.errors import AlignmentError, InputError, TokenizerMismatchError
from core.recipe.dataset_spec import AdoptedDatasetSpec
from core.recipe.specs import ScoreSpec
from tasks.caching import StepContext, step

OWN_SEED = "run_seed"
"""The one field of a score spec in which a data set may differ: which tokens a draw selected."""


@step(kind="dataset", version="1")
def adopt_dataset(
    context: StepContext, spec: AdoptedDatasetSpec, tasks: ArtifactRef
) -> dict[str, Any]:
    """Copy the files of a data set, which then has the content digest that the recipe names."""
    origin = context.runtime.data_paths.get(spec.digest)
    if origin is None:
        raise InputError(
            f"the data set with digest {spec.digest[:16]}… is not at hand",
            "Write its directory as offline_kd.dataset_path, so that it can be found again.",
        )
    record = read_external(origin, "dataset")
    if record.digest != spec.digest:
        raise InputError(
            f"{origin}: holds {record.digest[:16]}…, not {spec.digest[:16]}…",
            "Write the directory of that data set as offline_kd.dataset_path.",
        )
    check_origin(record, spec.score, tasks)
    copy_external(origin, record, context.out)
    return {"adopted_from": f"{record.name}-{record.key}", **_check_content(context, spec)}


def check_origin(record: Record, score: ScoreSpec, tasks: ArtifactRef) -> None:
    """Refuse a data set of other tasks, or whose teacher was asked for something else.

    Raises:
        InputError: The train split differs; its tasks might be the ones held out here.
        AlignmentError: The targets are not what the recipe's loss and selection ask for.
    """
    played = record.parents.get("tasks")
    if played is None or played.digest != tasks.digest:
        raise InputError(
            "offline_kd.dataset_path: its episodes are of other tasks than the train split here",
            "Write section environment as the recipe that froze it has it.",
        )
    there = dict(record.payload.get("spec") or {}).get("score") or {}
    found = [one for one in differences(encode(score), there) if one.path != OWN_SEED]
    if found:
        named = (f"{one.path} is {one.there} there, {one.here} here" for one in found)
        raise _other_targets("; ".join(named))


def _check_content(context: StepContext, spec: AdoptedDatasetSpec) -> dict[str, Any]:
    """Read the copied episodes and targets as an update will, and return what they amount to."""
    from core.evaluation.metrics import summarise
    from core.models.building import build_tokenizer
    from core.teacher.binding import check_binding
    from core.teacher.targets import Provenance, load_targets
    from core.trajectory.io import read_trajectories

    rows = read_trajectories(context.out / "trajectories.jsonl")
    codec = build_tokenizer(spec.tokenizer, context.placement)
    for row in rows:
        if row.tokenizer_digest != codec.digest or max(row.token_ids) >= codec.vocab_size:
            raise TokenizerMismatchError(
                f"offline_kd.dataset_path: {row.trajectory_id} is of another tokenizer than the "
                f"student's ({row.tokenizer_digest[:16]}…, not {codec.digest[:16]}…)",
                "Freeze a data set with this student's tokenizer.",
            )
    scored = load_targets(context.out)
    found = scored.provenance
    asked = (found.teacher_digest, codec.digest, found.policy_version)
    if found != Provenance.of(spec.score, *asked):
        raise _other_targets(f"its targets are {found.mode}, and its record says otherwise")
    check_binding(scored, rows)
    stats = summarise(rows)
    return {"episodes": stats.rollouts, "success_rate": stats.success_rate}


def _other_targets(what: str) -> AlignmentError:
    return AlignmentError(
        f"offline_kd.dataset_path: its targets are not what this recipe asks for: {what}",
        "Write sections loss, selection and models as the recipe that froze it has them.",
    )
