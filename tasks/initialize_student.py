"""The student before any training of ours: version 0 of its state."""

from core.recipe.specs import StudentSpec
from tasks.caching import StepContext, step
from tasks.labels import unbatched_class


@step(kind="student", version="1", gpu=True)
def initialize_student(context: StepContext, spec: StudentSpec) -> dict[str, int]:
    """Write the initial state and the description of its model."""
    from core.training.opening import open_model, write_model
    from core.training.state import initial_state

    resident = open_model("student", spec, context.placement, fresh=True)
    context.record_numeric_class(unbatched_class(context.runtime))
    state = initial_state(resident.backend)
    state.save(context.out)
    resident.state = state.digest()
    write_model(context.out, spec)
    return {"trainable_parameters": sum(tensor.numel() for tensor in state.tensors.values())}
