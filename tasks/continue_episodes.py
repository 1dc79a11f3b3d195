"""Continuations: the teacher, from states in which the student was before it failed."""

from typing import Any

from core.artifacts.record import ArtifactRef
from core.recipe.teacher_specs import ContinuationSpec
from tasks.caching import StepContext, step


@step(kind="continuations", version="1", gpu=True)
def continue_episodes(
    context: StepContext,
    spec: ContinuationSpec,
    teacher: ArtifactRef,
    rollouts: ArtifactRef,
    tasks: ArtifactRef,
) -> dict[str, Any]:
    """Write ``trajectories.jsonl``: of each failed episode, its turns but the last, and then on.

    There are none where the teacher reads other tokens than the student.
    """
    from core.environments.plugins import open_environment
    from core.environments.task_file import iterate_tasks
    from core.rollout.episodes import run_episodes
    from core.rollout.independence import engine_class
    from core.rollout.limits import EpisodeLimits, SamplingSpec
    from core.rollout.openings import before_last_turn
    from core.training.opening import open_weights
    from core.trajectory.io import read_trajectories, write_trajectories

    backend = open_weights("teacher", context.path(teacher), context.placement).backend
    failed = [
        one
        for one in read_trajectories(context.path(rollouts) / "trajectories.jsonl")
        # Its turns are given token by token, so the teacher must read the same tokens.
        if one.branches == 1 and not one.solved and one.tokenizer_digest == backend.tokenizer.digest
    ]
    wanted = {one.task_id for one in failed}
    every = iterate_tasks(context.path(tasks) / "tasks.jsonl")
    known = {task.task_id: task for task in every if task.task_id in wanted}
    limits = EpisodeLimits.of(spec.limits)
    done = run_episodes(
        backend,
        lambda: open_environment(spec.environment, context.runtime.plugins.environment),
        [known[one.task_id] for one in failed],
        limits,
        SamplingSpec(temperature=0.0),
        seed=0,
        trajectory_ids=[f"{one.trajectory_id}:continued" for one in failed],
        policy_version=0,
        model_digest=teacher.digest,
        slots=context.runtime.slots,
        template=spec.template,
        hinted=bool(spec.hinted),
        openings=[before_last_turn(one) for one in failed],
    )
    context.record_numeric_class(engine_class(backend, limits))
    write_trajectories(context.out / "trajectories.jsonl", done)
    return {"failed": len(failed), "solved": sum(one.solved for one in done)}
