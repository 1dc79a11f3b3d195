"""``opd export-adapter``: the student of a run as a directory that PEFT loads."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from core.artifacts.store import Store
from core.errors import InputError
from core.recipe.runtime import Runtime
from core.report.view import read_index

if TYPE_CHECKING:
    from core.models.adapter_export import Export


def export(run: Path, out: Path) -> "Export":
    """Write the adapter of a run's newest student.

    Raises:
        InputError: It is no run directory, its student is gone or has no adapter, or ``out``
            exists.
        BackendError: PEFT's model does not give the logits of ours.
    """
    from core.models.adapter_export import export_adapter
    from core.models.building import place
    from core.training.opening import read_model
    from core.training.state import load_state

    index = read_index(run)
    store = Store(index.store)
    problems = store.verify(index.student)
    if problems:
        raise InputError(problems[0], "Run the recipe again: the student will be rebuilt.")
    student = store.path(index.student)
    spec, state = read_model(student), load_state(student)
    placement = place(Runtime(model_paths=index.model_paths))
    base = str(placement.directory(spec.model.model_id)) if spec.model.model_id else ""
    return export_adapter(
        spec,
        state.tensors,
        out,
        placement,
        origin={"artifact": index.student.key, "counters": asdict(state.counters)},
        base_name=base,
    )
