"""What a teacher with hints reads in place of the student's episodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.artifacts.record import ArtifactRef
from core.recipe.specs import ScoreSpec
from core.recipe.teacher_specs import ComparisonSpec
from tasks.context import StepContext

if TYPE_CHECKING:
    from core.teacher.views import TeacherView
    from core.trajectory.tokens import TokenCodec
    from core.trajectory.trajectory import Trajectory


def hinted_views(
    context: StepContext,
    spec: ScoreSpec | ComparisonSpec,
    trajectories: "Sequence[Trajectory]",
    tasks: ArtifactRef | None,
    codec: "TokenCodec",
) -> "list[TeacherView] | None":
    """Return a view per episode, with the hint of its task; None for a teacher without hints."""
    if spec.environment is None or tasks is None:
        return None
    from core.environments.plugins import open_environment
    from core.environments.task_file import iterate_tasks
    from core.teacher.views import privileged_views

    environment = open_environment(spec.environment, context.runtime.plugins.environment)
    wanted = {one.task_id for one in trajectories}
    every = iterate_tasks(context.path(tasks) / "tasks.jsonl")
    known = [task for task in every if task.task_id in wanted]
    return privileged_views(trajectories, known, environment, codec, spec.template)
