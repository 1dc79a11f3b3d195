import json
import sqlite3

import pytest

from flows.server import serving
from flows.server.serving import _migrate, _revision


@pytest.fixture
def migrations(monkeypatch):
    """Count migrations instead of running them; each writes the newest revision."""
    ran = []

    def run(coroutine):
        coroutine.close()
        ran.append(1)

    monkeypatch.setattr(serving.asyncio, "run", run)
    return ran


def database(home, revision):
    with sqlite3.connect(home / "prefect.db") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS alembic_version (version_num TEXT)")
        connection.execute("DELETE FROM alembic_version")
        connection.execute("INSERT INTO alembic_version VALUES (?)", [revision])


def test_the_revision_is_read_without_prefect(tmp_path):
    path = tmp_path / "prefect.db"
    assert _revision(path) is None
    path.touch()
    assert _revision(path) is None
    database(tmp_path, "abc")
    assert _revision(path) == "abc"


def test_a_database_that_was_migrated_is_left_alone(tmp_path, migrations):
    database(tmp_path, "abc")
    _migrate(tmp_path)
    _migrate(tmp_path)
    assert migrations == [1]


@pytest.mark.parametrize("change", ["other prefect", "other database", "no database"])
def test_what_is_not_as_it_was_left_is_migrated(tmp_path, migrations, change):
    database(tmp_path, "abc")
    _migrate(tmp_path)
    stamp = tmp_path / "migrated.json"
    if change == "other prefect":
        stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "prefect": "3.0.0"}))
    elif change == "other database":
        database(tmp_path, "def")
    else:
        (tmp_path / "prefect.db").unlink()
    _migrate(tmp_path)
    assert migrations == [1, 1]


@pytest.mark.server
def test_prefect_leaves_a_revision_behind(prefect_session):
    home, _ = prefect_session
    stamp = json.loads((home / "migrated.json").read_text())
    assert stamp["revision"] == _revision(home / "prefect.db") is not None
