"""Which Prefect server a run talks to: the one of ``opd up``, or one that lives as long as the run.

Example::

    with server() as api_url:
        from flows.opd_cycle import opd_cycle  # imports Prefect, now that its settings are known

        opd_cycle("recipes/toy.yaml")
"""

import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core.errors import ServerError
from flows.server import daemons
from flows.server.settings import activated, environment, prefect_home

HOST = "127.0.0.1"
BACKLOG = 512
START_S = 180.0
"""Seconds for a server to start; the first start of a home migrates its database."""
STOP_S = 5.0
"""Seconds for a server to stop, and for the last events to be sent."""

PACKAGE = Path(__file__).parents[2]

NEEDED_BY_A_FLOW = (
    "prefect.main",
    "prefect.flow_engine",
    "prefect.task_engine",
    "prefect.artifacts",
    "fastapi.encoders",  # sends a flow's parameters
)
"""Imported while an embedded server starts, which takes longer, on another core."""

CONSOLE = "PrefectConsoleHandler"

IDLE_SERVICES = (
    "SCHEDULER",
    "LATE_RUNS",
    "FOREMAN",
    "CANCELLATION_CLEANUP",
    "CLEANUP_RECONCILER",
    "PAUSE_EXPIRATIONS",
    "EVENT_LOGGER",
    "TRIGGERS",
)
"""Services that nobody needs where there are no deployments and no automations. The recorder of
task runs stays, and the repossessor: a killed holder of the GPU slot must not hold it for good."""


@contextmanager
def server(
    home: Path | None = None, *, meanwhile: Callable[[], object] = lambda: None
) -> Iterator[str]:
    """Put a Prefect server in force for flows that run in this process.

    Enter it before anything imports Prefect: an embedded server starts while the import runs.

    Args:
        home: Directory of the server; ``$OPD_HOME`` or ``.opd/prefect`` where None.
        meanwhile: Called once Prefect is imported; an embedded server takes another second, on
            another core, so imports and other preparations belong here.

    Yields:
        URL of its API.

    Raises:
        ServerError: The server of ``opd up`` is of another version or does not answer, or an
            embedded one does not start.
    """
    home = (home or prefect_home()).absolute()
    running = running_server(home)
    source = embedded(home) if running is None else nullcontext(running)
    with source as url, activated(home, url):
        _import_prefect()
        meanwhile()
        wait_until_up(url, home)
        with in_process():
            yield url


def running_server(home: Path) -> str | None:
    """Return the API of the server that ``opd up`` started for a home; None where it did not.

    Raises:
        ServerError: It is of another version, or does not answer.
    """
    known = daemons.read(server_file(home))
    if known is None:
        return None
    if known["version"] != version("prefect"):
        raise ServerError(
            f"the running server is Prefect {known['version']}, but {version('prefect')} is "
            "installed",
            "Run `opd down`, then `opd up`.",
        )
    url = api_url(known["port"])
    wait_until_up(url, home)
    return url


def server_file(home: Path) -> Path:
    """Return the file that says where the server of ``opd up`` is."""
    return home / "run" / "server.json"


def api_url(port: int) -> str:
    """Return the API of a server on this machine."""
    return f"http://{HOST}:{port}/api"


@contextmanager
def embedded(home: Path) -> Iterator[str]:
    """Start a server of our own on a free port; it ends with this process, however that ends.

    Yields:
        URL of its API, which accepts connections at once and answers when the server is up.

    Raises:
        ServerError: The home cannot be created.
    """
    make_home(home)
    listener = bind(0)
    url = api_url(listener.getsockname()[1])
    with (home / "embedded.log").open("ab") as log:
        process = subprocess.Popen(
            [*command(listener), "--tied"],
            env=environment(home, url) | _quiet_services(),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            # Ctrl-C is for the flow; the server must still record how it ended.
            start_new_session=True,
        )
    listener.close()
    try:
        yield url
    finally:
        _stop(process)


def make_home(home: Path) -> None:
    """Create the directories of a home, for its user only.

    Raises:
        ServerError: They cannot be created.
    """
    try:
        for directory in (home, home / "results", home / "run"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ServerError(
            f"{home}: cannot be created: {error.strerror}",
            "Set OPD_HOME to a directory that can be written.",
        ) from error


def bind(port: int) -> socket.socket:
    """Listen on a port of this machine; 0 takes a free one.

    Raises:
        ServerError: Another program has the port.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise ServerError(
            f"port {port} cannot be used: {error.strerror}",
            f"Stop the program that has it, or choose another: `opd up --port {port + 1}`.",
        ) from error
    listener.listen(BACKLOG)
    return listener


def command(listener: socket.socket) -> list[str]:
    """Return the command line of a server that serves a listening socket."""
    code = (
        f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); "
        "from flows.server.serving import main; main()"
    )
    return [sys.executable, "-c", code, "--socket", str(listener.fileno())]


def wait_until_up(url: str, home: Path, seconds: float = START_S) -> None:
    """Wait for a server that listens already to answer.

    Args:
        url: Its API.
        home: Where it keeps its logs, for the message.
        seconds: How long it may take.

    Raises:
        ServerError: It ended or did not answer in time.
    """
    connection = HTTPConnection(urlsplit(url).netloc, timeout=seconds)
    try:
        connection.request("GET", "/api/health")
        healthy = connection.getresponse().status == 200
    except (OSError, HTTPException):
        healthy = False
    finally:
        connection.close()
    if not healthy:
        raise ServerError(
            f"the Prefect server at {url} does not answer; its logs are in {home}",
            f"Run `opd down` and try again; if that does not help, remove {home}: the runs' "
            "artifacts are elsewhere.",
        )


@contextmanager
def in_process() -> Iterator[None]:
    """Settings that only hold for flows run by this process: no heartbeat, a quiet terminal."""
    from prefect import context
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY

    root = context.GLOBAL_SETTINGS_CONTEXT  # what was activated, whatever is in force around us
    # The heartbeat's thread is joined at the end of a flow and sleeps a second at a time.
    settings = root.settings.copy_with_update(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    with context.SettingsContext(profile=root.profile, settings=settings), _quiet_terminal():
        try:
            yield
        finally:
            flush()


@contextmanager
def _quiet_terminal() -> Iterator[None]:
    # What a run logs goes to the server; the terminal belongs to the bar, and to warnings.
    runs = [logging.getLogger(name) for name in ("prefect.flow_runs", "prefect.task_runs")]
    consoles = [h for h in logging.getLogger().handlers if type(h).__name__ == CONSOLE]
    before = [each.propagate for each in runs], [each.level for each in consoles]
    for each in runs:
        each.propagate = False
    for each in consoles:
        each.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each, propagate in zip(runs, before[0], strict=True):
            each.propagate = propagate
        for each, level in zip(consoles, before[1], strict=True):
            each.setLevel(level)


def _import_prefect() -> None:
    for name in NEEDED_BY_A_FLOW:
        import_module(name)


def _quiet_services() -> dict[str, str]:
    off = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in IDLE_SERVICES}
    return off | {"PREFECT_SERVER_UI_ENABLED": "false"}


def _stop(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def flush() -> None:
    """Send the events and logs of this process that are still on their way."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        worker.drain_all(timeout=STOP_S)
