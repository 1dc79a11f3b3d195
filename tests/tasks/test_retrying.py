import errno
from types import SimpleNamespace

import httpx
import pytest

from core.errors import MemoryExhaustedError, OpdError, StoreError
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


def test_prefect_asks_with_the_exception_in_the_state():
    assert retry_condition(None, None, SimpleNamespace(data=MemoryError()))
    assert not retry_condition(None, None, SimpleNamespace(data=None))
    assert not retry_condition(None, None, SimpleNamespace(data=ValueError()))


def test_torch_calls_it_so():
    torch = pytest.importorskip("torch")
    assert can_pass(torch.cuda.OutOfMemoryError("x"))
