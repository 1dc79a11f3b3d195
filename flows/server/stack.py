"""``opd up``, ``opd down`` and ``opd status``: server, workers and deployments of one checkout."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core.errors import ServerError
from flows.server import daemons
from flows.server.connection import (
    api_url,
    bind,
    command,
    make_home,
    running_server,
    server_file,
    wait_until_up,
)
from flows.server.settings import activated, environment, prefect_home

PORT, MAX_PORT = 4200, 65_535
DEPLOYMENTS = Path("deployments/prefect.yaml")
WORKERS: Mapping[str, int] = {"gpu": 1, "ctl": 4}
"""Work pools, and how many flow runs each worker takes at once. What waits for other deployments
belongs on ``ctl``: on ``gpu`` it would wait for itself."""


@dataclass(frozen=True)
class StackStatus:
    """What ``opd up`` has running."""

    api: str | None
    """URL of the API, or None where there is no server."""
    home: str
    workers: dict[str, int | None]
    """Process number by pool, None where a worker is not running."""

    @property
    def complete(self) -> bool:
        """Tell whether the server and all workers are there."""
        return self.api is not None and None not in self.workers.values()

    def as_document(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.api is None and not any(self.workers.values()):
            return f"nothing is running (home {self.home})"
        lines = [
            f"UI       {self.api.removesuffix('/api')}" if self.api else "UI       not running"
        ]
        for pool, pid in self.workers.items():
            lines.append(f"worker   {pool:<4} {f'process {pid}' if pid else 'not running'}")
        return "\n".join([*lines, f"home     {self.home}"])


def up(
    home: Path | None = None,
    port: int | None = None,
    root: Path | None = None,
    arms: int | None = None,
) -> StackStatus:
    """Start what is not running yet: server, pools, GPU slot, workers; and deploy the flows.

    Args:
        home: Directory of the server; ``$OPD_HOME`` or ``.opd/prefect`` where None.
        port: Port of the server and its UI; where None, that of a server that runs already, or
            4200.
        root: Root of the checkout; the current directory where None.
        arms: Flow runs that the pool ``gpu`` takes at once; where None, as many as its worker
            takes already, or 1. On CUDA its steps still take turns at the GPU slot.

    Raises:
        ServerError: The port is taken or no port, the running server is of another version or on
            another port, the running worker takes another number of runs, there is nothing to
            deploy here, or something did not start.
    """
    home, root = _place(home), (root or Path.cwd()).absolute()
    if port is not None and not 0 < port <= MAX_PORT:
        raise ServerError(f"{port} is no port", f"Choose one from 1024 to {MAX_PORT}.")
    if not (root / DEPLOYMENTS).is_file():
        raise ServerError(
            f"{root / DEPLOYMENTS}: no such file", "Run `opd up` in the root of the repository."
        )
    _check_arms(home, arms)
    make_home(home)
    with daemons.held(home / "run" / "up.lock"):
        url = _start_server(home, port)
        with activated(home, url):
            from flows.server.registration import register

            register(tuple(WORKERS))
            for pool, limit in {**WORKERS, "gpu": arms or WORKERS["gpu"]}.items():
                _start_worker(home, url, root, pool, limit)
            _deploy(root)
    found = status(home)
    if not found.complete:
        missing = ", ".join(pool for pool, pid in found.workers.items() if pid is None)
        raise ServerError(
            f"the worker of {missing or 'the server'} ended at once",
            f"See the logs in {home / 'run'}.",
        )
    return found


def down(home: Path | None = None) -> str:
    """Stop all that ``up`` started, flow runs included, however much of it is still there.

    Returns:
        What was stopped, for a person.
    """
    home = _place(home)
    workers, server = [_worker_file(home, pool) for pool in WORKERS], server_file(home)
    stopped = [file.stem for file in (*workers, server) if daemons.read(file)]
    for file in workers:
        daemons.stop(file)
    # The server goes last: whatever ends before it can still tell it how.
    known = daemons.read(server)
    strays = daemons.stop_strays(home / "run", spared=known["pid"] if known else None)
    daemons.stop(server)
    if strays:
        stopped.append(f"{strays} flow run{'s' * (strays > 1)}")
    return f"stopped {', '.join(stopped)}" if stopped else "nothing was running"


def status(home: Path | None = None) -> StackStatus:
    """Say what is running."""
    home = _place(home)
    known = daemons.read(server_file(home))
    workers = {pool: daemons.read(_worker_file(home, pool)) for pool in WORKERS}
    return StackStatus(
        api=api_url(known["port"]) if known else None,
        home=str(home),
        workers={pool: facts["pid"] if facts else None for pool, facts in workers.items()},
    )


def _check_arms(home: Path, arms: int | None) -> None:
    if arms is None:
        return
    if arms < 1:
        raise ServerError(f"--arms {arms}: a worker takes at least one run", "Give 1 or more.")
    running = daemons.read(_worker_file(home, "gpu"))
    if running is not None and running.get("limit") != arms:
        raise ServerError(
            f"the worker of the pool gpu takes {running.get('limit', 1)} runs at once already",
            "Leave out --arms, or run `opd down` first.",
        )


def _place(home: Path | None) -> Path:
    return (home or prefect_home()).absolute()


def _worker_file(home: Path, pool: str) -> Path:
    return home / "run" / f"worker-{pool}.json"


def _start_server(home: Path, port: int | None) -> str:
    running = running_server(home)
    if running is not None:
        if port is not None and running != api_url(port):
            raise ServerError(
                f"the server is running already, at {running.removesuffix('/api')}",
                "Leave out --port, or run `opd down` first.",
            )
        return running
    port = port or PORT
    listener = bind(port)
    facts = {"port": port, "version": version("prefect")}
    settings = environment(home, api_url(port))
    daemons.start(server_file(home), command(listener), settings, facts, [listener.fileno()])
    listener.close()
    url = api_url(port)
    wait_until_up(url, home)
    return url


def _start_worker(home: Path, url: str, root: Path, pool: str, limit: int) -> None:
    file = _worker_file(home, pool)
    if daemons.read(file):
        return
    line = [*_prefect("worker", "start", "--pool", pool, "--type", "process")]
    line += ["--limit", str(limit), "--name", f"{pool}-{os.uname().nodename}"]
    facts = {"pool": pool, "limit": limit}
    daemons.start(file, line, environment(home, url), facts, directory=root)


def _deploy(root: Path) -> None:
    line = _prefect("--no-prompt", "deploy", "--all", "--prefect-file", str(DEPLOYMENTS))
    done = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ServerError(
            f"{DEPLOYMENTS} cannot be deployed: {said[-1] if said else 'no message'}",
            f"Run `prefect {' '.join(line[3:])}` to see why.",
        )


def _prefect(*words: str) -> list[str]:
    return [sys.executable, "-m", "prefect", *words]
