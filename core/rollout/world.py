"""An environment as an episode meets it: in place, or in a thread that may be given up."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from core.environments.base import Environment, ToolLimits
from core.errors import ToolEnvironmentError

logger = logging.getLogger(__name__)


class WorldTimeoutError(ToolEnvironmentError):
    """A method of an environment did not come back in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the environment gave no result within {seconds:g} s",
            "Raise the seconds in its tool_limits, or find out what it waits for.",
        )


@dataclass
class Attempt:
    """One method call: under way, or finished with a value or an error."""

    work: Callable[[], Any]
    limits: ToolLimits = field(default_factory=ToolLimits)
    finished: bool = False
    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """Return the value, or raise what the method raised."""
        if self.error is not None:
            raise self.error
        return self.value

    def run(self) -> None:
        """Do the work and keep what comes of it, even an exit of the interpreter."""
        try:
            self.value = self.work()
        except (Exception, SystemExit) as error:
            self.error = error
        self.finished = True


def _checked(limits: object) -> ToolLimits:
    if not isinstance(limits, ToolLimits):
        raise TypeError(f"tool_limits returned {type(limits).__name__}, not ToolLimits")
    return limits


class World:
    """Runs the methods of one environment, one at a time.

    A quick environment runs where it is called. A slow one has a thread of its own for the length
    of its episode, so its objects never change threads; a call that runs out of time leaves that
    thread behind. The thread is a daemon: it keeps neither the run nor the process from ending.

    Args:
        environment: The environment.
        wake: Set whenever a call of a slow environment is finished.
    """

    def __init__(self, environment: Environment, wake: threading.Event) -> None:
        self._environment = environment
        self._wake = wake
        self._inbox: SimpleQueue[Attempt | None] | None = None
        self._attempt = Attempt(lambda: None, finished=True)
        self.deadline = float("inf")
        """Instant of ``time.monotonic`` at which the call under way is given up."""

    def call(self, tool: str, work: Callable[[], Any]) -> None:
        """Begin a method call within the limits that the environment sets for ``tool``.

        Limits are the environment's code too: what they raise is what the call raises.
        """
        try:
            limits = _checked(self._environment.tool_limits(tool))
        except (Exception, SystemExit) as error:
            self._attempt = Attempt(work, finished=True, error=error)
            return
        self.start(work, limits)

    def start(self, work: Callable[[], Any], limits: ToolLimits) -> None:
        """Begin a method call; ``poll`` tells when it is over."""
        self._attempt = Attempt(work, limits)
        if not self._environment.slow:
            self._attempt.run()
            return
        self.deadline = time.monotonic() + limits.seconds
        if self._inbox is None:
            self._inbox = SimpleQueue()
            name = f"world-{self._environment.name}"
            target, inbox = self._serve, self._inbox
            threading.Thread(target=target, args=(inbox,), name=name, daemon=True).start()
        self._inbox.put(self._attempt)

    def poll(self) -> Attempt | None:
        """Return the call that was started, once it is finished or given up."""
        if not self._attempt.finished and time.monotonic() < self.deadline:
            return None
        attempt = self._attempt
        if not attempt.finished:
            logger.warning("%s: a call was given up", self._environment.name)
            # What the thread may still return is dropped with it; the next call gets another.
            self.close()
            late = WorldTimeoutError(attempt.limits.seconds)
            attempt = Attempt(attempt.work, attempt.limits, finished=True, error=late)
        self.deadline = float("inf")
        self._attempt = attempt
        return attempt

    def join(self) -> Attempt:
        """Block until the call that was started is finished or given up, and return it."""
        while (attempt := self.poll()) is None:
            self._wake.wait(max(0.0, self.deadline - time.monotonic()))
            self._wake.clear()
        return attempt

    def close(self) -> None:
        """Let the thread end after what it is doing."""
        if self._inbox is not None:
            self._inbox.put(None)
            self._inbox = None

    def _serve(self, inbox: "SimpleQueue[Attempt | None]") -> None:
        while (attempt := inbox.get()) is not None:
            attempt.run()
            self._wake.set()
