"""``opd export-adapter``: the student of a run as a directory that PEFT loads."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from core.runs.checkpoints import open_checkpoint, read_checkpoint
from core.runs.reading import open_run
from flows.runs.sources import runtime_at

if TYPE_CHECKING:
    from core.models.adapter_export import Export


def export(run: Path, out: Path, model: Path | None = None) -> "Export":
    """Write the adapter of a run's newest student.

    Args:
        run: A run directory.
        out: Directory to make.
        model: Directory of the base model, where the run came from another machine.

    Raises:
        InputError: It is no run directory, its checkpoint is gone or has no adapter, or ``out``
            exists.
        BackendError: PEFT's model does not give the logits of ours.
    """
    from core.models.adapter_export import export_adapter
    from core.models.building import place
    from core.training.opening import read_model
    from core.training.state import load_state

    open_run(run)
    student = open_checkpoint(run)
    spec, state = read_model(student), load_state(student)
    placement = place(runtime_at(run, model))
    base = str(placement.directory(spec.model.model_id)) if spec.model.model_id else ""
    origin = read_checkpoint(student).artifact.key
    return export_adapter(
        spec,
        state.tensors,
        out,
        placement,
        origin={"artifact": origin, "counters": asdict(state.counters)},
        base_name=base,
    )
