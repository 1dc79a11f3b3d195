"""Whether a role that is at rest leaves the device: resident, swap, or auto with its reason.

Weights that go to the host and come back are the same bits, so the choice is no identity. Torch is
not imported here.
"""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from core.errors import BackendError

Strategy = Literal["resident", "swap", "auto"]

MOVES_NF4 = (0, 43, 2)
"""bitsandbytes from which 4-bit weights and their scales move between devices."""


@dataclass(frozen=True)
class MemoryRules:
    """What a runtime wants of device memory."""

    strategy: Strategy = "auto"
    """``auto`` swaps where the device is too small for all roles."""
    headroom_bytes: int = 2 * 2**30
    """Free bytes below which ``auto`` swaps before it loads another role."""


@dataclass(frozen=True)
class Decision:
    """How roles share the device, and why."""

    strategy: Literal["resident", "swap"]
    reason: str

    @property
    def swaps(self) -> bool:
        """Whether a role at rest goes to the host."""
        return self.strategy == "swap"


def obstacle(quantization: str) -> str | None:
    """Return why weights cannot leave their device, or None if they can.

    Args:
        quantization: ``none``, ``nf4`` or ``int8``.
    """
    if quantization == "none":
        return None
    if quantization == "int8":
        return "8-bit weights stay where they were quantised"
    try:
        installed = version("bitsandbytes")
    except PackageNotFoundError:
        return "bitsandbytes is not installed"
    if tuple(int(number) for number in re.findall(r"\d+", installed)[:3]) >= MOVES_NF4:
        return None
    return f"bitsandbytes {installed} cannot move 4-bit weights; 0.43.2 and later can"


def decide(
    rules: MemoryRules, *, device: str, free_bytes: int | None, fixed: str | None
) -> Decision:
    """Decide before another role is loaded beside one that is there.

    Args:
        rules: What is wanted.
        device: ``cpu`` or ``cuda``.
        free_bytes: What the device has left; None where it cannot tell.
        fixed: Why the weights that are there cannot leave; None if they can.

    Raises:
        BackendError: ``swap`` is asked for and impossible.
    """
    if rules.strategy == "resident":
        return Decision("resident", "asked for")
    if rules.strategy == "swap":
        if fixed is not None:
            raise BackendError(
                f"runtime.memory_strategy=swap is impossible: {fixed}",
                "Set runtime.memory_strategy=resident, or another quantization.",
            )
        return Decision("swap", "asked for")
    if device == "cpu":
        return Decision("resident", "auto: a CPU has no memory of its own")
    if fixed is not None:
        return Decision("resident", f"auto: {fixed}")
    if free_bytes is not None and free_bytes < rules.headroom_bytes:
        return Decision(
            "swap",
            f"auto: {free_bytes / 2**30:.2f} GiB are free, less than the "
            f"{rules.headroom_bytes / 2**30:.2f} GiB of headroom",
        )
    free = "an unknown amount of memory" if free_bytes is None else f"{free_bytes / 2**30:.2f} GiB"
    return Decision("resident", f"auto: {free} was free before the next role was loaded")


def crowded(role: str) -> Decision:
    """Return what ``auto`` decides after a role did not fit beside the others."""
    return Decision("swap", f"auto: the {role} does not fit beside the other roles")
