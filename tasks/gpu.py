"""The GPU slot: one step at a time per machine, taken inside a step's body.

Two locks: Prefect's concurrency limit ``gpu``, which the UI shows and which spans machines that
share a server, and around the work itself an ``flock``, which the kernel frees with a killed
holder. A step that is cached takes neither. Torch is not imported here.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from core.recipe.runtime import Runtime

LIMIT = "gpu"
"""Name of Prefect's global concurrency limit."""

LEASE_S = 60
"""Seconds after which the slot of a killed holder is free; the shortest that Prefect permits."""

LOCK = Path(tempfile.gettempdir()) / "opdflow-gpu.lock"
"""One per machine, whatever the home, the store and the user."""

NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvgpu")
"""Device nodes, one of which exists where CUDA can work."""

DRIVER = Path("/proc/driver/nvidia/gpus")
"""Where the driver describes its devices."""

_held: set[int] = set()


def uses_cuda(runtime: Runtime) -> bool:
    """Tell whether a step of this runtime computes on CUDA, without importing torch."""
    return runtime.device == "cuda" or (runtime.device == "auto" and cuda_is_present())


def device_kind(runtime: Runtime) -> str:
    """Return the kind of device of a runtime: ``cpu``, or ``cuda:`` with the model's name."""
    if not uses_cuda(runtime):
        return "cpu"
    names = [name for file in sorted(DRIVER.glob("*/information")) if (name := _model(file))]
    return f"cuda:{names[0]}" if names else "cuda"


def cuda_is_present() -> bool:
    """Tell whether this process can use a CUDA device, from files and environment alone."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path(node).exists() for node in NODES) and _torch_has_cuda()


@cache
def _torch_has_cuda() -> bool:
    found = find_spec("torch")
    if found is None or found.origin is None:
        return False
    return any((Path(found.origin).parent / "lib").glob("*torch_cuda*"))


def _model(information: Path) -> str | None:
    lines = information.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line[:6] == "Model:"), None)


@contextmanager
def gpu_slot(runtime: Runtime) -> Iterator[None]:
    """Hold the GPU slot of this machine; on a CPU, or with ``gpu_slot: false``, do nothing."""
    if not (runtime.gpu_slot and uses_cuda(runtime)):
        yield
        return
    from prefect.concurrency.sync import concurrency

    ensure_limit()
    # A failed renewal must not cancel the step: the flock still keeps others out.
    limit = concurrency(
        LIMIT, strict=True, lease_duration=LEASE_S, raise_on_lease_renewal_failure=False
    )
    with limit, machine_lock(LOCK):
        yield


def ensure_limit() -> None:
    """Create the limit of one where there is none; one that exists is left as it is."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(LIMIT)
        except ObjectNotFound:
            with suppress(ObjectAlreadyExists):  # another process was first
                client.create_global_concurrency_limit(
                    GlobalConcurrencyLimitCreate(name=LIMIT, limit=1)
                )


@contextmanager
def machine_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive ``flock`` on a file, waiting for it; another user's file will do."""
    descriptor = _open(path)
    _held.add(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor in _held:  # not so in a forked child, which has closed it
            _held.remove(descriptor)
            os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    except PermissionError:
        # Shared temporary directories refuse O_CREAT on a file of another user.
        return os.open(path, os.O_RDONLY)


def _drop_in_child() -> None:
    # A forked child shares the open file: it would keep the slot after its parent was killed.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_drop_in_child)
