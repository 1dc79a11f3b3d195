"""The process of a Prefect server: uvicorn on a socket that its parent has bound.

``python -m flows.server.serving`` is started by :mod:`flows.server.connection` and
:mod:`flows.server.stack` only. The socket listens from the start, so clients connect at once and
are served when the server is up. With ``--tied`` the process ends when its standard input does,
which the kernel closes with the parent, however that dies.
"""

import argparse
import asyncio
import fcntl
import gc
import json
import os
import signal
import socket
import sqlite3
import threading
from importlib.metadata import version
from pathlib import Path

GRACE_S = 3
"""Seconds between asking an orphaned server to stop and stopping it."""


def main() -> None:
    """Serve until told to stop."""
    gc.disable()  # imports allocate for seconds and free nothing
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=int, required=True, help="an inherited descriptor")
    parser.add_argument("--tied", action="store_true", help="end with the parent")
    options = parser.parse_args()
    if options.tied:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    _serve(socket.socket(fileno=options.socket))


def _serve(listener: socket.socket) -> None:
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    _migrate(get_current_settings().home)
    config = uvicorn.Config(create_app(final=True), log_level="error", lifespan="on")
    gc.freeze()
    gc.enable()
    uvicorn.Server(config).run(sockets=[listener])


def _migrate(home: Path) -> None:
    """Bring the database up to date; several servers may start on one home at once."""
    with (home / "migration.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        database, stamp = home / "prefect.db", home / "migrated.json"
        wanted = {"prefect": version("prefect"), "revision": _revision(database)}
        if wanted["revision"] and stamp.is_file() and json.loads(stamp.read_text()) == wanted:
            return
        from prefect.server.database import provide_database_interface

        asyncio.run(provide_database_interface().create_db())
        stamp.write_text(json.dumps(wanted | {"revision": _revision(database)}))


def _revision(database: Path) -> str | None:
    if not database.is_file():
        return None
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError:  # an empty database has no such table
        return None
    finally:
        connection.close()
    return row[0] if row else None


def _end_with_parent() -> None:
    while os.read(0, 1):
        continue
    threading.Timer(GRACE_S, os._exit, [0]).start()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
