import errno
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from core.artifacts.filesystem import touching
from core.errors import InputError, MemoryExhaustedError, OpdError, StoreError, TrajectoryError
from tasks.retrying import can_pass, retry_condition

REQUEST = httpx.Request("GET", "http://x")


def status(code):
    return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(code))


class OutOfMemoryError(RuntimeError):
    __module__ = "torch"


class DeviceOutOfMemoryError(OutOfMemoryError):
    pass


class ImpostorError(RuntimeError):
    __name__ = "OutOfMemoryError"


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("CUDA out of memory"),
        DeviceOutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        ConnectionResetError(errno.ECONNRESET, "x"),
        TimeoutError(),
        OSError(errno.EAGAIN, "x"),
        OSError(errno.EIO, "x"),
        OSError(errno.ESTALE, "x"),
        httpx.ConnectError("x"),
        httpx.ReadTimeout("x"),
        status(503),
    ],
)
def test_these_can_pass(error):
    assert can_pass(error)


@pytest.mark.parametrize(
    "error",
    [
        OpdError("a", "b"),
        StoreError("disk full", "b"),
        MemoryExhaustedError("a", "b"),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "quota"),
        OSError(errno.EROFS, "read-only"),
        FileNotFoundError(errno.ENOENT, "x"),
        PermissionError(errno.EACCES, "x"),
        OSError("no number"),
        ValueError("x"),
        RuntimeError("CUDA out of memory"),
        ImpostorError("x"),
        KeyboardInterrupt(),
        status(404),
    ],
)
def test_these_cannot(error):
    assert not can_pass(error)


def wrapped(kind, cause):
    """An error that this system made of another one."""
    try:
        raise kind("what", "what to do") from cause
    except OpdError as error:
        return error


@pytest.mark.parametrize("kind", [StoreError, TrajectoryError])
@pytest.mark.parametrize(
    ("number", "passes"),
    [
        (errno.EIO, True),
        (errno.ESTALE, True),
        (errno.EAGAIN, True),
        (errno.ENOSPC, False),
        (errno.EROFS, False),
        (errno.EACCES, False),
    ],
)
def test_a_disk_error_that_was_explained_is_judged_by_its_cause(kind, number, passes):
    assert can_pass(wrapped(kind, OSError(number, "x"))) is passes
    assert can_pass(wrapped(InputError, wrapped(kind, OSError(number, "x")))) is passes


def test_other_causes_do_not_make_a_refusal_pass():
    assert not can_pass(wrapped(MemoryExhaustedError, OutOfMemoryError("x")))
    assert not can_pass(wrapped(StoreError, TimeoutError("no number")))


def test_the_file_system_seam_keeps_the_cause():
    with pytest.raises(StoreError) as caught, touching("read_file", Path("x")):
        raise OSError(errno.ESTALE, "stale")
    assert can_pass(caught.value)


def test_prefect_asks_with_the_exception_in_the_state():
    assert retry_condition(None, None, SimpleNamespace(data=MemoryError()))
    assert not retry_condition(None, None, SimpleNamespace(data=None))
    assert not retry_condition(None, None, SimpleNamespace(data=ValueError()))


def test_torch_calls_it_so():
    torch = pytest.importorskip("torch")
    assert can_pass(torch.cuda.OutOfMemoryError("x"))
