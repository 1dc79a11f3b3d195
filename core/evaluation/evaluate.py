"""Held-out evaluation of one student state: greedy by default, on a slice of a split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.environments.base import Environment, Task
from core.errors import RecipeError
from core.evaluation.metrics import RolloutStats, summarise
from core.models.backend import Backend
from core.recipe.schema.rollout import OwnTemplate
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.trajectory.trajectory import Trajectory


@dataclass(frozen=True)
class Evaluation:
    """Episodes in task order, and what they amount to."""

    trajectories: list[Trajectory]
    stats: RolloutStats


def evaluation_slice(tasks: Sequence[Task], *, offset: int, count: int | None) -> list[Task]:
    """Return ``count`` tasks from ``offset``; all that follow where ``count`` is None.

    Raises:
        RecipeError: If the split has fewer tasks.
    """
    end = len(tasks) if count is None else offset + count
    if offset >= len(tasks) or end > len(tasks):
        raise RecipeError(
            f"eval.task_offset {offset} with eval.tasks {count} exceeds the split's "
            f"{len(tasks)} tasks",
            "Lower eval.tasks or raise the number of tasks of that split in environment.",
        )
    return list(tasks[offset:end])


def evaluate(
    backend: Backend,
    make_environment: Callable[[], Environment],
    tasks: Sequence[Task],
    limits: EpisodeLimits,
    sampling: SamplingSpec,
    *,
    seed: int,
    policy_version: int,
    model_digest: str,
    slots: int,
    samples_per_task: int = 1,
    template: OwnTemplate | None = None,
    hinted: bool = False,
) -> Evaluation:
    """Run each task and summarise.

    Args:
        backend: Holds the weights to be judged.
        make_environment: Makes one environment per episode.
        tasks: Held-out tasks.
        limits: Bounds of an episode.
        sampling: Temperature 0 is greedy.
        seed: Enters only where the temperature is above 0.
        policy_version: Optimizer steps behind the weights.
        model_digest: Content digest of the weights.
        slots: Episodes decoded together; it changes no episode.
        samples_per_task: Episodes of each task, which follow each other.
        template: Use of the tokenizer's own template; None is ChatML.
        hinted: Show the model each task's hint.
    """
    ids = [f"{task.task_id}:eval:v{policy_version}" for task in tasks]
    repeated = [task for task in tasks for _ in range(samples_per_task)]
    if samples_per_task > 1:
        ids = [f"{name}:s{sample}" for name in ids for sample in range(samples_per_task)]
    trajectories = run_episodes(
        backend,
        make_environment,
        repeated,
        limits,
        sampling,
        seed=seed,
        trajectory_ids=ids,
        policy_version=policy_version,
        model_digest=model_digest,
        slots=slots,
        template=template,
        hinted=hinted,
    )
    return Evaluation(trajectories, summarise(trajectories))
