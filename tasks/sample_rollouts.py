"""Rollouts: the episodes that the newest student samples in one cycle."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.specs import RolloutSpec
from tasks.caching import StepContext, step

if TYPE_CHECKING:
    from core.environments.base import Task
    from core.trajectory.trajectory import Trajectory


@step(kind="rollouts", version="1", gpu=True)
def sample_rollouts(
    context: StepContext, spec: RolloutSpec, student: ArtifactRef, tasks: ArtifactRef
) -> dict[str, Any]:
    """Write ``trajectories.jsonl`` and ``stats.json``."""
    from core.environments.task_file import count_tasks, pick_tasks
    from core.evaluation.metrics import summarise
    from core.prompts.order import prompt_order
    from core.training.supervised import task_order
    from core.trajectory.io import write_trajectories

    train = context.path(tasks) / "tasks.jsonl"
    count = count_tasks(train)
    if spec.order is None:
        order = task_order(count, spec.run_seed, spec.task_cursor)
    else:
        order = prompt_order(count, spec.order, spec.task_cursor)
    chosen = pick_tasks(train, list(islice(order, spec.rollouts)))
    # A task may come up twice in one cycle when the order wraps, hence the place in it.
    ids = [f"{task.task_id}:c{spec.cycle}:{place}" for place, task in enumerate(chosen)]
    trajectories = play(context, spec, student, chosen, ids)
    write_trajectories(context.out / "trajectories.jsonl", trajectories)
    stats = summarise(trajectories)
    write_json(context.out / "stats.json", stats.model_dump(mode="json"))
    return {"success_rate": stats.success_rate, "generated_tokens": stats.generated_tokens}


def play(
    context: StepContext,
    spec: RolloutSpec,
    student: ArtifactRef,
    chosen: "Sequence[Task]",
    ids: Sequence[str],
) -> "list[Trajectory]":
    """Return the episodes that a student samples on some tasks."""
    from core.environments.plugins import open_environment
    from core.rollout.episodes import run_episodes
    from core.rollout.independence import engine_class
    from core.rollout.limits import EpisodeLimits, SamplingSpec
    from core.training.opening import open_weights
    from core.training.state import read_summary

    origin = context.path(student)
    digest, counters = read_summary(origin)
    backend = open_weights("student", origin, context.placement).backend
    limits = EpisodeLimits.of(spec.limits)
    trajectories = run_episodes(
        backend,
        lambda: open_environment(spec.environment, context.runtime.plugins.environment),
        chosen,
        limits,
        SamplingSpec(**spec.sampling.model_dump()),
        seed=spec.run_seed,
        trajectory_ids=ids,
        policy_version=counters.parameter_version,
        model_digest=digest,
        slots=context.runtime.slots,
        template=spec.template,
    )
    context.record_numeric_class(engine_class(backend, limits))
    return trajectories
