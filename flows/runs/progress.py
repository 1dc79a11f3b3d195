"""Who is told how far a run is: nobody, or a bar on the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Listener(Protocol):
    """Told before and after each step."""

    def begin(self, total: int) -> None:
        """A run of ``total`` steps starts."""
        ...

    def before(self, step: str, name: str) -> None:
        """A step starts."""
        ...

    def after(self, *, cached: bool) -> None:
        """It ended."""
        ...


class Silent:
    """Hears and says nothing."""

    def begin(self, total: int) -> None:
        """Say nothing."""

    def before(self, step: str, name: str) -> None:
        """Say nothing."""

    def after(self, *, cached: bool) -> None:
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
        """Show how much there is to do."""
        self.progress.update(self._bar, total=total)

    def before(self, step: str, name: str) -> None:
        """Show the present step."""
        note = f"   ({self._cached} cached)" if self._cached else ""
        self.progress.update(self._bar, description=f"{step} {name}{note}")

    def after(self, *, cached: bool) -> None:
        """Advance."""
        self._cached += cached
        self.progress.advance(self._bar)


@contextmanager
def bar(*, quiet: bool) -> Iterator[None]:
    """Show a bar while flows of this process run; a quiet run shows none."""
    if quiet:
        yield
        return
    shown = Bar()
    token = LISTENER.set(shown)
    try:
        with shown.progress:
            yield
    finally:
        LISTENER.reset(token)
