"""What a teacher with a hint reads: the student's episode and the hint of its task."""

from collections.abc import Sequence

from core.environments.base import Environment, Task
from core.errors import AlignmentError
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory
from core.trajectory.transcript import TeacherView, teacher_view


def privileged_views(
    trajectories: Sequence[Trajectory],
    tasks: Sequence[Task],
    environment: Environment,
    codec: TokenCodec,
) -> list[TeacherView]:
    """Return one view per trajectory, with the hint of its task.

    Args:
        trajectories: What the student did.
        tasks: The tasks they may come from, found by id.
        environment: Knows the hints.
        codec: The teacher's tokenizer.

    Raises:
        AlignmentError: A trajectory's task is not among ``tasks``, or has no hint.
    """
    by_id = {task.task_id: task for task in tasks}
    views = []
    for trajectory in trajectories:
        task = by_id.get(trajectory.task_id)
        hint = environment.privileged_context(task) if task is not None else None
        if hint is None:
            raise AlignmentError(
                f"{trajectory.trajectory_id} has no hint in environment {environment.name}",
                "Set models.teacher.mode=standard, or use an environment with hints.",
            )
        views.append(teacher_view(trajectory, hint, codec))
    return views
