"""Which failures can pass by themselves: memory, a busy system, a connection.

Nothing else is retried, nor is what this system understands (``OpdError``), except where it only
explains a system error that can pass: a disk that stutters is not bad input.
"""

import errno
from typing import Any

from core.errors import OpdError

RETRIES = 2
DELAYS_S = (5.0, 30.0)
"""Seconds before the first and second retry."""

PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.EINTR,
        errno.EIO,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOLCK,
        errno.ENOMEM,
        errno.EPIPE,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""System errors that may be gone the next time; a full or read-only disk is not among them."""


def can_pass(error: BaseException) -> bool:
    """Tell whether the same step may succeed if it is simply run again."""
    if isinstance(error, OpdError):
        return isinstance(error.__cause__, OpdError | OSError) and _explained(error.__cause__)
    if isinstance(error, MemoryError | TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError):
        return error.errno in PASSING
    return _out_of_device_memory(error) or _lost_server(error)


def retry_condition(task: Any, task_run: Any, state: Any) -> bool:
    """Prefect's ``retry_condition_fn``; the state carries the exception itself."""
    return isinstance(state.data, BaseException) and can_pass(state.data)


def _explained(cause: OpdError | OSError) -> bool:
    # By number alone: a lock that timed out has none, and has waited long enough already.
    return can_pass(cause) if isinstance(cause, OpdError) else cause.errno in PASSING


def _out_of_device_memory(error: BaseException) -> bool:
    # By name: a step that never imported torch cannot have raised this, and need not import it.
    return any(
        cls.__name__ == "OutOfMemoryError" and cls.__module__.split(".")[0] == "torch"
        for cls in type(error).__mro__
    )


def _lost_server(error: BaseException) -> bool:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500
    return isinstance(error, httpx.HTTPError)
