"""A frozen data set: episodes that were collected once, with what the teacher says about them."""

from itertools import islice
from typing import TYPE_CHECKING, Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.dataset_spec import DatasetSpec
from tasks.caching import StepContext, step
from tasks.sample_rollouts import play
from tasks.score_rollouts import write_targets

if TYPE_CHECKING:
    from core.trajectory.trajectory import Trajectory


@step(kind="dataset", version="1", gpu=True)
def freeze_dataset(
    context: StepContext,
    spec: DatasetSpec,
    teacher: ArtifactRef,
    tasks: ArtifactRef,
    student: ArtifactRef | None = None,
    traces: ArtifactRef | None = None,
) -> dict[str, Any]:
    """Write ``trajectories.jsonl``, the targets, ``stats.json`` and ``manifest.json``.

    Exactly one of ``student`` and ``traces`` says whose episodes they are.
    """
    from core.evaluation.metrics import summarise
    from core.trajectory.io import write_trajectories

    if student is not None:
        trajectories = _sampled(context, spec, tasks, student)
    else:
        assert traces is not None, "episodes come from a student or from the oracle"
        trajectories = _demonstrated(context, spec, tasks, traces)
    write_trajectories(context.out / "trajectories.jsonl", trajectories)
    stats = summarise(trajectories)
    write_json(context.out / "stats.json", stats.model_dump(mode="json"))
    found = write_targets(context, spec.score, trajectories, teacher, tasks)
    manifest = {
        "source": spec.source,
        "episodes": stats.rollouts,
        "solved": stats.solved,
        "policy_version": trajectories[0].policy_version,
        "student_digest": trajectories[0].model_digest,
        "teacher_digest": teacher.digest,
        "task_ids": [row.task_id for row in trajectories if row.is_whole],
    }
    write_json(context.out / "manifest.json", manifest)
    return {
        "success_rate": stats.success_rate,
        "generated_tokens": stats.generated_tokens if student is not None else 0,
        **found,
    }


def _order(spec: DatasetSpec, count: int) -> list[int]:
    """Return the indices of the tasks, as the cycles of a run on this seed would take them."""
    from core.training.supervised import task_order

    return list(islice(task_order(count, spec.order_seed, spec.first_task or 0), spec.episodes))


def _sampled(
    context: StepContext, spec: DatasetSpec, tasks: ArtifactRef, student: ArtifactRef
) -> "list[Trajectory]":
    from core.environments.task_file import count_tasks, pick_tasks

    assert spec.rollout is not None, "a student samples by a rollout spec"
    train = context.path(tasks) / "tasks.jsonl"
    chosen = pick_tasks(train, _order(spec, count_tasks(train)))
    ids = [f"{task.task_id}:frozen:{place}" for place, task in enumerate(chosen)]
    return play(context, spec.rollout, student, chosen, ids)


def _demonstrated(
    context: StepContext, spec: DatasetSpec, tasks: ArtifactRef, traces: ArtifactRef
) -> "list[Trajectory]":
    """Return the oracle's traces in the order of the tasks, each once for every turn it has."""
    from core.environments.task_file import count_tasks
    from core.training.episode_groups import episode_groups
    from core.trajectory.io import read_trajectories

    rows = read_trajectories(context.path(traces) / "trajectories.jsonl")
    episodes = episode_groups(rows, 1)
    count = count_tasks(context.path(tasks) / "tasks.jsonl")
    assert count == len(episodes), "the oracle plays every task once"
    chosen = list(dict.fromkeys(_order(spec, count)))  # a trace that is there twice says no more
    return [rows[branch] for index in chosen for branch in episodes[index]]
