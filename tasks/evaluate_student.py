"""An evaluation: one student state on held-out tasks."""

from typing import Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.specs import EvaluationSpec
from tasks.caching import StepContext, step


@step(kind="evaluation", version="1", gpu=True)
def evaluate_student(
    context: StepContext, spec: EvaluationSpec, student: ArtifactRef, tasks: ArtifactRef
) -> dict[str, Any]:
    """Write ``eval.json``, one row per task in it, and ``eval_trajectories.jsonl``."""
    from core.environments.plugins import open_environment
    from core.environments.task_file import read_tasks
    from core.evaluation.evaluate import evaluate, evaluation_slice
    from core.evaluation.metrics import outcomes
    from core.evaluation.recovery import recovery
    from core.rollout.independence import engine_class
    from core.rollout.limits import EpisodeLimits, SamplingSpec
    from core.training.opening import open_weights
    from core.training.state import read_summary
    from core.trajectory.io import write_trajectories

    origin = context.path(student)
    split = read_tasks(context.path(tasks) / "tasks.jsonl")
    digest, counters = read_summary(origin)
    backend = open_weights("student", origin, context.placement).backend
    limits = EpisodeLimits.of(spec.limits)
    done = evaluate(
        backend,
        lambda: open_environment(spec.environment, context.runtime.plugins.environment),
        evaluation_slice(split, offset=spec.task_offset, count=spec.tasks),
        limits,
        SamplingSpec(**spec.sampling.model_dump()),
        seed=spec.seed,
        policy_version=counters.parameter_version,
        model_digest=digest,
        slots=context.runtime.slots,
        samples_per_task=spec.samples_per_task or 1,
        template=spec.template,
    )
    context.record_numeric_class(engine_class(backend, limits))
    write_trajectories(context.out / "eval_trajectories.jsonl", done.trajectories)
    recovered = recovery(done.trajectories)
    document = {
        "split": spec.split,
        "parameter_version": counters.parameter_version,
        "stats": done.stats.model_dump(mode="json"),
        "outcomes": outcomes(done.trajectories),
        "recovery": recovered and recovered.model_dump(mode="json"),
    }
    write_json(context.out / "eval.json", document)
    return {"success_rate": done.stats.success_rate, "solved": done.stats.solved}
