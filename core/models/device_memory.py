"""How much memory a device has left and how much was in use at most, where it can tell.

CUDA has a memory of its own and counts in it. A CPU computes in the memory of the process, which
other things share and nobody counts by step: it answers None.
"""

from typing import Protocol

GIB = 2**30


class DeviceMemory(Protocol):
    """The memory that models and their activations compete for."""

    def free_bytes(self) -> int | None:
        """Bytes that can still be had, or None where the device cannot tell."""
        ...

    def peak_bytes(self) -> int | None:
        """Most bytes in tensors at one time since the last reset, or None."""
        ...

    def reset_peak(self) -> None:
        """Start that counter anew."""
        ...

    def release_unused(self) -> None:
        """Give memory that no tensor holds back to the device."""
        ...


class SharedMemory:
    """A CPU: it has no memory but the process's own."""

    def free_bytes(self) -> int | None:
        """Return None: the memory is not the device's."""
        return None

    def peak_bytes(self) -> int | None:
        """Return None: nobody counts."""
        return None

    def reset_peak(self) -> None:
        """Do nothing."""

    def release_unused(self) -> None:
        """Do nothing."""


class CudaMemory:
    """The present CUDA device, as torch's allocator counts it."""

    def free_bytes(self) -> int | None:
        """Bytes that the driver has free, and those that the allocator keeps without a tensor."""
        import torch

        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

    def peak_bytes(self) -> int | None:
        """``torch.cuda.max_memory_allocated``; None before anything was allocated."""
        import torch

        return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None

    def reset_peak(self) -> None:
        """Start the allocator's counter anew."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()

    def release_unused(self) -> None:
        """Empty the allocator's cache."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def device_memory(device: str) -> DeviceMemory:
    """Return the memory of a kind of device, ``cpu`` or ``cuda``."""
    return CudaMemory() if device.startswith("cuda") else SharedMemory()
