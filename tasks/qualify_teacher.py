"""A qualification: what a teacher itself can do on held-out tasks."""

from typing import Any

from core.artifacts.codec import write_json
from core.artifacts.record import ArtifactRef
from core.recipe.teacher_specs import QualificationSpec
from tasks.caching import StepContext, step


@step(kind="qualification", version="1", gpu=True)
def qualify_teacher(
    context: StepContext, spec: QualificationSpec, teacher: ArtifactRef, tasks: ArtifactRef
) -> dict[str, Any]:
    """Write ``qualification.json``, the rates that it showed, and its episodes."""
    from core.environments.plugins import open_environment
    from core.environments.task_file import read_tasks
    from core.evaluation.evaluate import evaluate, evaluation_slice
    from core.evaluation.qualification import measure
    from core.models.adapter_directory import Evidence
    from core.rollout.independence import engine_class
    from core.rollout.limits import EpisodeLimits, SamplingSpec
    from core.training.opening import open_weights
    from core.trajectory.io import write_trajectories

    backend = open_weights("teacher", context.path(teacher), context.placement).backend
    chosen = evaluation_slice(
        read_tasks(context.path(tasks) / "tasks.jsonl"), offset=spec.task_offset, count=spec.tasks
    )
    limits = EpisodeLimits.of(spec.limits)
    done = evaluate(
        backend,
        lambda: open_environment(spec.environment, context.runtime.plugins.environment),
        chosen,
        limits,
        SamplingSpec(**spec.sampling.model_dump()),
        seed=spec.seed,
        policy_version=0,
        model_digest=teacher.digest,
        slots=context.runtime.slots,
        samples_per_task=spec.samples_per_task or 1,
        template=spec.template,
        hinted=bool(spec.hinted),
    )
    context.record_numeric_class(engine_class(backend, limits))
    write_trajectories(context.out / "trajectories.jsonl", done.trajectories)
    evidence = Evidence(
        environment=spec.environment.name,
        params=spec.environment.params,
        difficulty=chosen[0].difficulty,
        split=spec.split,
        tasks=len(chosen),
        rates=measure(done.trajectories),
    )
    write_json(context.out / "qualification.json", evidence.model_dump(mode="json"))
    return {name: rate.estimate for name, rate in evidence.rates.items()}
