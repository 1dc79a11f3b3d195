"""Prefect's settings, all of them, as environment variables.

Prefect reads the environment before any file, so what stands here holds for the flow's process,
for the servers and for the workers alike, whatever profile the user has. ``[tool.prefect]`` in
``pyproject.toml`` holds only what the plain ``prefect`` command needs in this directory.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

HOME_VARIABLE = "OPD_HOME"
DEFAULT_HOME = Path(".opd/prefect")

SHARED = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # Our server process migrates under a lock, and only where it must: flows/server/serving.py.
    "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    # In memory, a lease would be lost with its server, and the GPU slot with the lease.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    # One transaction per event is what a server needs longest for.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_CONCURRENCY_MAXIMUM_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_TASKS_REFRESH_CACHE": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "core,tasks,flows",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # The plug-in rewrites the arguments of the `prefect` command; here is none.
    "PREFECT_PLUGINS_ENABLED": "false",
}

ELSEWHERE = (
    "PREFECT_API_KEY",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_PROFILE",
    "PREFECT_API_DATABASE_CONNECTION_URL",
    "PREFECT_LOCAL_STORAGE_PATH",
    "PREFECT_RESULTS_DEFAULT_STORAGE_BLOCK",
    "PREFECT_DEFAULT_RESULT_STORAGE_BLOCK",
    "PREFECT_SERVER_API_BASE_PATH",
)
"""What could lead to another server, or results to another place; removed."""


def prefect_home() -> Path:
    """Return the directory of servers, results and logs: ``$OPD_HOME``, or ``.opd/prefect``."""
    return Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME).absolute()


def environment(home: Path, api_url: str) -> dict[str, str]:
    """Return the environment of any process that talks to the server of a home.

    Args:
        home: Where the server keeps its database, results and logs.
        api_url: Its API, e.g. ``http://127.0.0.1:4200/api``.

    Returns:
        A whole environment: this process's own, with Prefect's settings replaced.
    """
    inherited = {name: text for name, text in os.environ.items() if name not in ELSEWHERE}
    return inherited | SHARED | _paths(home) | {"PREFECT_API_URL": api_url} | _no_proxy(inherited)


@contextmanager
def activated(home: Path, api_url: str) -> Iterator[None]:
    """Put the settings of a home in force in this process, and take them back afterwards.

    Cheap when entered before ``import prefect``; works afterwards too.
    """
    before = dict(os.environ)
    _replace_environment(environment(home, api_url))
    try:
        with _reread():
            yield
    finally:
        _replace_environment(before)
        _reread()


def _paths(home: Path) -> dict[str, str]:
    return {
        HOME_VARIABLE: str(home),
        "PREFECT_HOME": str(home),
        "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(home / "results"),
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "ui"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / 'prefect.db'}",
    }


def _no_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Keep the loopback off the user's proxy."""
    listed = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    hosts = [*filter(None, listed.split(",")), "127.0.0.1", "localhost"]
    text = ",".join(dict.fromkeys(hosts))
    return {"NO_PROXY": text, "no_proxy": text}


def _replace_environment(environ: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)


def _reread() -> AbstractContextManager[object]:
    """Make a Prefect that is loaded already read the environment again.

    Returns:
        A context in which that holds even inside settings that somebody put in force.
    """
    if "prefect.context" not in sys.modules:
        return nullcontext()
    from prefect import context

    context.refresh_global_settings_context()
    root = context.GLOBAL_SETTINGS_CONTEXT
    return context.SettingsContext(profile=root.profile, settings=root.settings)
