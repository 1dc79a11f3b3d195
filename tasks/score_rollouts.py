"""Targets: what the teacher says at the selected positions of one cycle's episodes."""

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.specs import ScoreSpec
from tasks.caching import StepContext, step
from tasks.hints import hinted_views
from tasks.labels import batched_class

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.teacher.target_cache import TargetCache
    from core.trajectory.trajectory import Trajectory


@step(kind="targets", version="2", gpu=True)
def score_rollouts(
    context: StepContext,
    spec: ScoreSpec,
    rollouts: ArtifactRef,
    teacher: ArtifactRef,
    tasks: ArtifactRef | None = None,
) -> dict[str, Any]:
    """Write the targets and ``selection.json``; tasks are read for a teacher's hints."""
    from core.trajectory.io import read_trajectories

    trajectories = read_trajectories(context.path(rollouts) / "trajectories.jsonl")
    return write_targets(context, spec, trajectories, teacher, tasks)


def write_targets(
    context: StepContext,
    spec: ScoreSpec,
    trajectories: "Sequence[Trajectory]",
    teacher: ArtifactRef,
    tasks: ArtifactRef | None,
) -> dict[str, Any]:
    """Write what the teacher says about some episodes, and return how much that is."""
    from core.selection.plugins import open_selector
    from core.selection.selectors import aggregate_stats, select_positions
    from core.teacher.reuse import Tally
    from core.teacher.scorer import score
    from core.training.opening import open_weights

    rule = open_selector(spec.selection, context.runtime.plugins.selector)
    selections = [
        select_positions(one, spec.selection, spec.run_seed, rule) for one in trajectories
    ]
    if spec.plugin is not None:
        return _by_plugin(context, spec, trajectories, selections, teacher.digest)
    backend = open_weights("teacher", context.path(teacher), context.placement).backend
    context.record_numeric_class(batched_class(context.runtime))
    views = hinted_views(context, spec, trajectories, tasks, backend.tokenizer)
    arguments = (trajectories, selections, spec, context.runtime)
    if spec.student_tokenizer is not None:
        return _across(context, backend, arguments, teacher.digest)
    tally = Tally()
    scored = score(
        backend,
        *arguments,
        teacher_digest=teacher.digest,
        teacher_views=views,
        cache=_cache(context, backend.name),
        tally=tally,
    )
    scored.save(context.out)
    stats = aggregate_stats(selection.stats for selection in selections)
    write_json(context.out / "selection.json", stats)
    if tally.reused_positions:
        asked = tally.reused_positions + tally.computed_positions
        logger.info("%d of %d targets came from the cache", tally.reused_positions, asked)
    # What the cache held is no content: the record alone knows it.
    return stats | asdict(tally)


def _cache(context: StepContext, backend: str) -> "TargetCache | None":
    """Return the targets of earlier steps, where the runtime wants them."""
    from core.teacher.cache_index import directory_of
    from core.teacher.target_cache import open_cache

    wanted = context.runtime.cache_enabled
    if wanted is False or (wanted == "auto" and backend == "toy"):
        return None
    return open_cache(directory_of(context.store.root, context.runtime.cache_dir))


def _by_plugin(
    context: StepContext, spec: ScoreSpec, trajectories: Any, selections: Any, teacher_digest: str
) -> dict[str, Any]:
    """Write the targets of a teacher that is no model."""
    from core.models.building import build_tokenizer
    from core.selection.selectors import aggregate_stats
    from core.teacher.plugin_scorer import score_by_plugin
    from core.teacher.plugins import open_teacher

    assert spec.plugin is not None and spec.student_tokenizer is not None
    codec = build_tokenizer(spec.student_tokenizer, context.placement)
    own = open_teacher(spec.plugin, codec, context.runtime.plugins.teacher)
    context.record_numeric_class(batched_class(context.runtime))
    arguments = (trajectories, selections, spec)
    score_by_plugin(own, *arguments, teacher_digest=teacher_digest).save(context.out)
    stats = aggregate_stats(selection.stats for selection in selections)
    write_json(context.out / "selection.json", stats)
    return stats


def _across(
    context: StepContext, backend: Any, arguments: tuple[Any, ...], teacher_digest: str
) -> dict[str, Any]:
    """Write the targets of a teacher with a tokenizer of its own."""
    from core.models.building import build_tokenizer
    from core.selection.selectors import aggregate_stats
    from core.teacher.cross_tokenizer import score_across
    from core.teacher.shared_vocabulary import score_shared

    _, selections, spec, _ = arguments
    codec = build_tokenizer(spec.student_tokenizer, context.placement)
    ask = score_shared if spec.loss_mode == "shared_vocab" else score_across
    found = ask(backend, codec, *arguments, teacher_digest=teacher_digest)
    found.targets.save(context.out)
    stats = aggregate_stats(selection.stats for selection in selections) | {
        "model_bytes": found.model_bytes,
        "unaligned_bytes": found.unaligned_bytes,
        **found.counts,
    }
    write_json(context.out / "selection.json", stats)
    return stats
