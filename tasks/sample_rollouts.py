"""Rollouts: the episodes that the newest student samples in one cycle."""

from itertools import islice
from typing import Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.specs import RolloutSpec
from tasks.caching import StepContext, step


@step(kind="rollouts", version="1", gpu=True)
def sample_rollouts(
    context: StepContext, spec: RolloutSpec, student: ArtifactRef, tasks: ArtifactRef
) -> dict[str, Any]:
    """Write ``trajectories.jsonl`` and ``stats.json``."""
    from core.environments.plugins import open_environment
    from core.environments.task_file import read_tasks
    from core.evaluation.metrics import summarise
    from core.rollout.episodes import run_episodes
    from core.rollout.independence import engine_class
    from core.rollout.limits import EpisodeLimits, SamplingSpec
    from core.training.opening import open_weights
    from core.training.state import read_summary
    from core.training.supervised import task_order
    from core.trajectory.io import write_trajectories

    origin = context.path(student)
    digest, counters = read_summary(origin)
    train = read_tasks(context.path(tasks) / "tasks.jsonl")
    order = islice(task_order(len(train), spec.run_seed, spec.task_cursor), spec.rollouts)
    chosen = [train[index] for index in order]
    backend = open_weights("student", origin, context.placement).backend
    limits = EpisodeLimits.of(spec.limits)
    trajectories = run_episodes(
        backend,
        lambda: open_environment(spec.environment, context.runtime.plugins.environment),
        chosen,
        limits,
        SamplingSpec(**spec.sampling.model_dump()),
        seed=spec.run_seed,
        # A task may come up twice in one cycle when the order wraps, hence the place in it.
        trajectory_ids=[
            f"{task.task_id}:c{spec.cycle}:{place}" for place, task in enumerate(chosen)
        ],
        policy_version=counters.parameter_version,
        model_digest=digest,
        slots=context.runtime.slots,
    )
    context.record_numeric_class(engine_class(backend, limits))
    write_trajectories(context.out / "trajectories.jsonl", trajectories)
    stats = summarise(trajectories)
    write_json(context.out / "stats.json", stats.model_dump(mode="json"))
    return {"success_rate": stats.success_rate, "generated_tokens": stats.generated_tokens}
