"""The student after one cycle: its state moved towards the teacher on its own episodes."""

from typing import TYPE_CHECKING, Any

from core.artifacts.codec import write_json, write_jsonl
from core.artifacts.record import ArtifactRef
from core.recipe.training_specs import UpdateSpec
from tasks.caching import StepContext, step
from tasks.labels import batched_class

if TYPE_CHECKING:
    from core.training.budget import Meter


@step(kind="student", version="1", gpu=True)
def update_student(
    context: StepContext,
    spec: UpdateSpec,
    student: ArtifactRef,
    rollouts: ArtifactRef,
    targets: ArtifactRef,
    teacher: ArtifactRef,
) -> dict[str, Any]:
    """Write the new state, rows per optimizer step and per token, and what the canaries found."""
    from core.recipe.objective import HIDDEN_STATES
    from core.teacher.binding import check_teacher
    from core.teacher.targets import load_targets
    from core.teacher.window import window
    from core.training.budget import write_spent
    from core.training.canaries import check_canaries
    from core.training.collapse import Watch, read_watch, watch, write_watch
    from core.training.opening import open_pair, open_reference, read_model, write_model
    from core.training.state import load_state
    from core.training.update import update
    from core.trajectory.io import read_trajectories

    origin = context.path(student)
    meter = _meter(context, spec, student, (rollouts, targets))
    state = load_state(origin)
    trajectories, scored = window(
        read_trajectories(context.path(rollouts) / "trajectories.jsonl"),
        load_targets(context.path(targets)),
        spec.window,
    )
    check_teacher(scored, teacher.digest)
    # Exact targets are hidden states, which the teacher's head must read on the device.
    together = scored.provenance.mode in HIDDEN_STATES
    resident, teacher_backend = open_pair(
        origin, context.path(teacher), context.placement, together=together
    )
    reference = open_reference(spec.reference, context.placement)
    context.record_numeric_class(batched_class(context.runtime))
    with resident.changing() as backend:
        arguments = (backend, state, trajectories, scored, spec, context.runtime)
        if spec.cycle == 0:
            found = check_canaries(*arguments, teacher=teacher_backend)
            write_json(context.out / "canaries.json", found)
        done = update(*arguments, teacher=teacher_backend, meter=meter, reference=reference)
    done.state.save(context.out)
    resident.state = done.state.digest()
    write_model(context.out, read_model(origin))
    write_jsonl(context.out / "metrics.jsonl", done.rows)
    write_jsonl(context.out / "token_analysis.jsonl", done.token_rows)
    ends: dict[str, Any] = {}
    if spec.stop is not None:
        # As with the budget: what another run had counted is not this one's.
        before = read_watch(origin) if spec.cycle > 0 else Watch()
        seen = watch(before, trajectories, spec.stop)
        write_watch(context.out, seen)
        ends["stopped"] = seen.stopped
    if meter is not None:
        ends |= write_spent(context.out, meter.reading())
    return {"optimizer_steps": len(done.rows), **_headline(done.rows), **done.physical, **ends}


def _meter(
    context: StepContext, spec: UpdateSpec, student: ArtifactRef, others: tuple[ArtifactRef, ...]
) -> "Meter | None":
    """Return the run's budget as the last cycle left it; the first starts anew."""
    from core.training.budget import Meter, read_spent

    if spec.budget is None:
        return None
    before = read_spent(context.path(student)) if spec.cycle > 0 else None
    # A frozen data set is both of the others, and was made before the first cycle.
    made = {} if spec.window is not None and spec.cycle > 0 else {ref.key: ref for ref in others}
    seconds = sum(context.record(ref).provenance.wall_time_s for ref in made.values())
    return Meter(spec.budget, before, seconds=seconds)


def _headline(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {}
    return {name: rows[-1][name] for name in ("loss", "grad_norm", "lr", "selected_positions")}
