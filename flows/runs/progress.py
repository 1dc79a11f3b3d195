"""Who is told how far a run is: nobody, a bar on a terminal, or a line now and then in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

EVERY_S = 30.0
"""Seconds between two lines about steps in a log."""


class Listener(Protocol):
    """Told before and after each step, and of what is worth a line of its own."""

    def begin(self, total: int) -> None:
        """A run of ``total`` steps starts."""
        ...

    def before(self, step: str, name: str) -> None:
        """A step starts."""
        ...

    def after(self, *, cached: bool) -> None:
        """It ended."""
        ...

    def said(self, text: str) -> None:
        """Something that a person would want to keep: a result, or a failure."""
        ...


class Silent:
    """Hears and says nothing."""

    def begin(self, total: int) -> None:
        """Say nothing."""

    def before(self, step: str, name: str) -> None:
        """Say nothing."""

    def after(self, *, cached: bool) -> None:
        """Say nothing."""

    def said(self, text: str) -> None:
        """Say nothing."""


LISTENER: ContextVar[Listener] = ContextVar("opd_listener", default=Silent())  # noqa: B039 - stateless


class Bar:
    """A progress bar: steps done, the present one, and how many came from the store."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        self._cached = 0
        self.progress = Progress(
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            Elapsed(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar = self.progress.add_task("starting", total=None)

    def begin(self, total: int) -> None:
        """Count from nothing: the next run of a benchmark has steps of its own."""
        self._cached = 0
        self.progress.reset(self._bar, total=total, start=True)

    def before(self, step: str, name: str) -> None:
        """Show the present step."""
        note = f"   ({self._cached} cached)" if self._cached else ""
        self.progress.update(self._bar, description=f"{step} {name}{note}")

    def after(self, *, cached: bool) -> None:
        """Advance."""
        self._cached += cached
        self.progress.advance(self._bar)

    def said(self, text: str) -> None:
        """Print a line above the bar."""
        self.progress.console.print(text, highlight=False, markup=False)


class Lines:
    """Lines for a log: every result, and at most one in ``EVERY_S`` seconds about steps."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()
        self._total = self._done = self._cached = 0

    def begin(self, total: int) -> None:
        """Count from nothing."""
        self._total, self._done, self._cached = total, 0, 0

    def before(self, step: str, name: str) -> None:
        """Say which step starts, if it is time."""
        if time.monotonic() - self._shown >= EVERY_S:
            note = f", {self._cached} cached" if self._cached else ""
            self.said(f"{self._done} of {self._total} steps{note}; now {step} {name}")

    def after(self, *, cached: bool) -> None:
        """Count."""
        self._done += 1
        self._cached += cached

    def said(self, text: str) -> None:
        """Print a line with the seconds since the beginning."""
        self._shown = time.monotonic()
        sys.stderr.write(f"[{self._shown - self._began:6.0f} s] {text}\n")
        sys.stderr.flush()  # a log is read while it grows


@contextmanager
def shown(*, quiet: bool) -> Iterator[None]:
    """Show how far flows of this process are, while they run; a quiet run shows nothing."""
    if quiet:
        yield
        return
    on_terminal = Bar() if sys.stderr.isatty() else None
    token = LISTENER.set(on_terminal or Lines())
    try:
        with on_terminal.progress if on_terminal else nullcontext():
            yield
    finally:
        LISTENER.reset(token)
