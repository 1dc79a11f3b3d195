"""The teacher: a toy fitted on oracle traces once for every run and arm, weights, or a plug-in."""

from typing import Any

from core.artifacts.codec import write_json, write_jsonl
from core.artifacts.record import ArtifactRef
from core.recipe.specs import StudentSpec, TeacherSpec, ToyFitSpec
from tasks.caching import StepContext, step
from tasks.labels import batched_class, unbatched_class


@step(kind="teacher", version="1", gpu=True)
def prepare_teacher(
    context: StepContext, spec: TeacherSpec, traces: ArtifactRef | None = None
) -> dict[str, Any]:
    """Write which model or plug-in teaches and, where a model was fitted, its weights."""
    if spec.plugin is not None:
        write_json(context.out / "plugin.json", spec.plugin.model_dump(mode="json"))
        return {"fitted": False}
    from core.training.opening import write_model

    assert spec.model is not None, "a teacher is a model or a plug-in"
    seed = spec.fit.seed if spec.fit is not None else 0
    description = StudentSpec(model=spec.model, lora=None, seed=seed)
    write_model(context.out, description)
    if spec.fit is None or traces is None:
        context.record_numeric_class(unbatched_class(context.runtime))
        return {"fitted": False}
    return _fit(context, description, spec.fit, traces)


def _fit(
    context: StepContext, description: StudentSpec, spec: ToyFitSpec, traces: ArtifactRef
) -> dict[str, Any]:
    from core.training.opening import open_model
    from core.training.state import initial_state
    from core.training.supervised import examples_of, fit, toy_fit_plan, weights_only
    from core.trajectory.io import read_trajectories

    resident = open_model("teacher", description, context.placement, fresh=True)
    numeric = batched_class(context.runtime)
    context.record_numeric_class(numeric)
    examples = examples_of(read_trajectories(context.path(traces) / "trajectories.jsonl"))
    with resident.changing() as backend:
        start, plan = initial_state(backend), toy_fit_plan(spec)
        kept = context.progress(numeric)
        done = fit(backend, start, examples, plan, context.runtime, progress=kept)
    weights_only(done.state).save(context.out)
    resident.state = done.state.digest()
    write_jsonl(context.out / "metrics.jsonl", done.rows)
    return {"fitted": True, "last_loss": done.rows[-1]["loss"] if done.rows else None}
