"""What a teacher with a hint reads: the student's episode and the hint of its task."""

from collections.abc import Sequence

from core.environments.base import Environment, Task
from core.errors import AlignmentError
from core.models.framing import frame_template, system_text
from core.recipe.schema.rollout import OwnTemplate
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory
from core.trajectory.view import TeacherView, teacher_view


def privileged_views(
    trajectories: Sequence[Trajectory],
    tasks: Sequence[Task],
    environment: Environment,
    codec: TokenCodec,
    template: OwnTemplate | None = None,
) -> list[TeacherView]:
    """Return one view per trajectory, with the hint of its task.

    Args:
        trajectories: What the student did.
        tasks: The tasks they may come from, found by id.
        environment: Knows the hints.
        codec: The teacher's tokenizer.
        template: Use of the tokenizer's own template; None is ChatML.

    Raises:
        ChatTemplateError: The template cannot show a hint after the system message.
        AlignmentError: A trajectory's task is not among ``tasks``, or has no hint.
    """
    by_id = {task.task_id: task for task in tasks}
    frames = frame_template(codec, environment, template)
    system = None if template is None else system_text(environment, frames)
    views = []
    for trajectory in trajectories:
        task = by_id.get(trajectory.task_id)
        hint = environment.privileged_context(task) if task is not None else None
        if hint is None:
            raise AlignmentError(
                f"{trajectory.trajectory_id} has no hint in environment {environment.name}",
                "Set models.teacher.mode=standard, or use an environment with hints.",
            )
        views.append(teacher_view(trajectory, hint, codec, frames, system_text=system))
    return views
