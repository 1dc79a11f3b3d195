"""How a hit may differ from what would be computed now; normally not at all.

Neither code nor device is part of a key, so what differs in them is said, not rebuilt.
"""

from typing import Any

from core.artifacts.code import changed_functions
from core.artifacts.record import NumericClass, Record
from core.artifacts.request import PublishRequest
from core.recipe.runtime import Runtime
from tasks.gpu import device_kind

MAX_NAMES = 6
"""Changed functions that a message names before it counts the rest."""


def default_numeric_class(spec: Any, runtime: Runtime) -> NumericClass:
    """Return what a runtime says of a step that runs a model: device and physical sizes.

    Threads are None where the runtime names none: what that means depends on the backend.
    """
    return NumericClass(
        device=device_kind(runtime),
        chunk=runtime.chunk_size,
        trajectory_batch_size=runtime.trajectory_batch_size,
        max_update_padded_tokens=runtime.max_update_padded_tokens or 0,
        length_bucketing=runtime.length_bucketing,
        threads=runtime.threads,
    )


def batched_class(runtime: Runtime) -> NumericClass:
    """Return the numeric class of scoring and training, with torch's present threads.

    Call it after the model was opened, which is when torch gets its threads.
    """
    import torch

    known = default_numeric_class(None, runtime)
    return known.model_copy(update={"threads": torch.get_num_threads()})


def unbatched_class(runtime: Runtime) -> NumericClass:
    """Return the numeric class of a step without a forward pass: no physical size reaches it."""
    return NumericClass(device=device_kind(runtime))


def hit_labels(request: PublishRequest, record: Record) -> list[str]:
    """Return one line per difference between a stored artifact and a request for it.

    Args:
        request: What is asked for now.
        record: What answers it.
    """
    return [*_code_labels(request, record), *_numeric_labels(request.measured_class(), record)]


def _code_labels(request: PublishRequest, record: Record) -> list[str]:
    if not (request.code and record.code) or request.code.digest == record.code.digest:
        return []
    names = changed_functions(record.code.functions, request.code.functions)
    rest = len(names) - MAX_NAMES
    listed = ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
    return [f"code has changed since it was built: {listed}"]


def _numeric_labels(expected: NumericClass | None, record: Record) -> list[str]:
    """Compare what both sides say; a record may know more than can be known before a build."""
    if expected is None or record.numeric_class is None:
        return []
    pairs = [(name, getattr(record.numeric_class, name), here) for name, here in expected]
    differing = [
        f"{name} {there}, here {here}"
        for name, there, here in pairs
        if None not in (there, here) and there != here
    ]
    return [f"built in another numeric class: {'; '.join(differing)}"] if differing else []
