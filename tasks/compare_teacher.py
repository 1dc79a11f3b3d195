"""A comparison: what teacher and student say of the states that the student visited."""

from typing import Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.teacher_specs import ComparisonSpec
from tasks.caching import StepContext, step
from tasks.hints import hinted_views
from tasks.labels import batched_class


@step(kind="comparison", version="1", gpu=True)
def compare_teacher(
    context: StepContext,
    spec: ComparisonSpec,
    student: ArtifactRef,
    teacher: ArtifactRef,
    rollouts: ArtifactRef,
    tasks: ArtifactRef | None = None,
) -> dict[str, Any]:
    """Write ``comparison.json``; tasks are read for a teacher's hints."""
    from core.evaluation.comparison import compare
    from core.training.opening import open_pair
    from core.trajectory.io import read_trajectories

    trajectories = list(read_trajectories(context.path(rollouts) / "trajectories.jsonl"))
    places = context.path(student), context.path(teacher)
    resident, other = open_pair(*places, context.placement, together=True)
    assert other is not None, "a plug-in has no head, and is refused before"
    context.record_numeric_class(batched_class(context.runtime))
    views = hinted_views(context, spec, trajectories, tasks, other.tokenizer)
    found = compare(
        resident.backend,
        other,
        trajectories,
        top_k=spec.top_k,
        temperature=spec.temperature,
        views=views,
    )
    write_json(context.out / "comparison.json", found.model_dump(mode="json"))
    signs = found.tokens
    return {} if signs is None else {"overlap": signs.overlap, "divergence": signs.divergence}
