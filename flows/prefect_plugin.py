"""What the plain ``prefect`` command gains in this directory, through Prefect's plug-in hook.

It finds the server of ``opd up``, and a bare deployment name stands for the flow and deployment of
that name: ``prefect deployment run opd-cycle`` is ``… opd-cycle/opd-cycle``, which also works
without this. Loaded while Prefect is being imported, so it must not import it.
"""

import os
import sys
from pathlib import Path
from typing import Any

from pluggy import HookimplMarker

from flows.server import daemons
from flows.server.settings import prefect_home

hook = HookimplMarker("prefect-experimental")

GROUPS = ("deployment", "deployments")
VERBS = ("run", "inspect")


@hook
def setup_environment(*, ctx: Any) -> None:
    """Adapt this process's environment and, where it is the ``prefect`` command, its arguments."""
    del ctx  # keyword-only and so named: Prefect checks the signature
    url = server_of_this_directory()
    if url is not None:
        os.environ.setdefault("PREFECT_API_URL", url)
    if Path(sys.argv[0]).name in ("prefect", "__main__.py"):
        sys.argv[:] = expand(sys.argv)


def server_of_this_directory() -> str | None:
    """Return the API of the server that ``opd up`` runs for this directory, if it does."""
    known = daemons.read(prefect_home() / "run" / "server.json")
    return None if known is None else f"http://127.0.0.1:{known['port']}/api"


def expand(arguments: list[str]) -> list[str]:
    """Return a command line with ``NAME`` of ``deployment run NAME`` written as ``NAME/NAME``."""
    for place in range(len(arguments) - 2):
        group, verb, name = arguments[place : place + 3]
        if group in GROUPS and verb in VERBS:
            bare = not name.startswith("-") and "/" not in name
            full = [f"{name}/{name}"] if bare else [name]
            return [*arguments[: place + 2], *full, *arguments[place + 3 :]]
    return arguments
