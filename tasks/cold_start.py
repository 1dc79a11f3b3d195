"""The cold start: supervised training on oracle traces, shared by every arm of a seed."""

from typing import Any

from core.artifacts.codec import write_jsonl
from core.artifacts.record import ArtifactRef
from core.recipe.training_specs import ColdStartSpec
from tasks.caching import StepContext, step
from tasks.labels import batched_class


@step(kind="student", version="1", gpu=True)
def cold_start(
    context: StepContext, spec: ColdStartSpec, student: ArtifactRef, traces: ArtifactRef
) -> dict[str, Any]:
    """Write the state that the first on-policy cycle starts from, and a row per step."""
    from core.selection.plugins import open_selector
    from core.training.budget import Meter, write_spent
    from core.training.opening import open_weights, read_model, write_model
    from core.training.state import load_state
    from core.training.supervised import cold_start_plan, examples_of, fit, weights_only
    from core.trajectory.io import read_trajectories

    origin = context.path(student)
    resident = open_weights("student", origin, context.placement)
    numeric = batched_class(context.runtime)
    context.record_numeric_class(numeric)
    examples = examples_of(
        read_trajectories(context.path(traces) / "trajectories.jsonl"),
        spec.selection,
        spec.seed,
        open_selector(spec.selection, context.runtime.plugins.selector),
    )
    plan = cold_start_plan(spec)
    meter = Meter(spec.budget) if spec.budget is not None else None
    with resident.changing() as backend:
        done = fit(
            backend,
            load_state(origin),
            examples,
            plan,
            context.runtime,
            meter,
            context.progress(numeric),
        )
    state = done.state if spec.carries_optimizer else weights_only(done.state)
    state.save(context.out)
    resident.state = state.digest()
    write_model(context.out, read_model(origin))
    write_jsonl(context.out / "metrics.jsonl", done.rows)
    headline = {
        "optimizer_steps": len(done.rows),
        "last_loss": done.rows[-1]["loss"] if done.rows else None,
    }
    if meter is not None:
        headline |= write_spent(context.out, meter.reading())
    return {**headline, **done.physical}
