"""One Prefect server for the whole session, in a home of its own on a free port."""

import os

import pytest

from flows.server.connection import embedded, in_process, wait_until_up
from flows.server.settings import SHARED, activated

# Prefect reads this once, when it is first imported, which may be before any test has a server.
EXTRA = "PREFECT_LOGGING_EXTRA_LOGGERS"
os.environ.setdefault(EXTRA, SHARED[EXTRA])


@pytest.fixture(scope="session")
def prefect_session(tmp_path_factory):
    """Home and API of a server that ends with the session; not in force by itself."""
    home = tmp_path_factory.mktemp("prefect")
    with embedded(home) as url:
        wait_until_up(url, home)
        yield home, url


@pytest.fixture
def prefect_server(prefect_session):
    """That server, in force for one test; returns its API."""
    home, url = prefect_session
    with activated(home, url), in_process():
        yield url
