"""What a step took of its device's memory, beside what it returns for the record.

The figures are of one machine at one moment, so they go into the record and never into content.
"""

from typing import Any

from core.models.device_memory import device_memory
from core.recipe.runtime import Runtime
from tasks.gpu import uses_cuda

NOT_MEASURED = "not measured"


class DeviceUse:
    """The device memory of one step.

    Args:
        runtime: Says which device, and what is reset and released around a step.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._memory = device_memory("cuda" if uses_cuda(runtime) else "cpu")

    def begin(self) -> None:
        """Start the peak counter anew, unless the runtime wants one for the whole process."""
        if self._runtime.memory_reset_peak_stats_each_cycle:
            self._memory.reset_peak()

    def end(self) -> None:
        """Give what no tensor holds back to the device, unless the runtime keeps it."""
        if self._runtime.memory_empty_cache_between_phases:
            self._memory.release_unused()

    def peak(self) -> dict[str, Any]:
        """Return the step's peak for its record."""
        peak = self._memory.peak_bytes()
        return {"peak_memory_bytes": NOT_MEASURED if peak is None else peak}


def memory_decision() -> dict[str, Any]:
    """Return how the models of this process share the device, and why. This imports torch."""
    from core.models.roles import RESIDENTS

    found = RESIDENTS.decision
    if found is None:
        return {"memory_strategy": "resident", "memory_reason": "one model so far"}
    return {"memory_strategy": found.strategy, "memory_reason": found.reason}
