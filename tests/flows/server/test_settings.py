import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.server.settings import activated, environment, prefect_home

REPO = Path(__file__).parents[3]
URL = "http://127.0.0.1:4999/api"


def test_the_home_is_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("OPD_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert prefect_home() == tmp_path / ".opd/prefect"


def test_the_home_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("OPD_HOME", str(tmp_path / "h"))
    assert prefect_home() == tmp_path / "h"


def test_what_leads_elsewhere_is_removed_and_the_rest_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_KEY", "secret")
    monkeypatch.setenv("PREFECT_PROFILE", "cloud")
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "DEBUG")
    made = environment(tmp_path, URL)
    assert not {"PREFECT_API_KEY", "PREFECT_PROFILE"} & made.keys()
    assert (made["PREFECT_LOGGING_LEVEL"], made["PATH"]) == ("DEBUG", os.environ["PATH"])


def test_the_user_s_profile_and_home_are_not_used(tmp_path):
    made = environment(tmp_path, URL)
    assert made["PREFECT_API_URL"] == URL
    paths = {n: made[n] for n in ("PREFECT_HOME", "PREFECT_PROFILES_PATH", "OPD_HOME")}
    assert all(Path(path).is_relative_to(tmp_path) for path in paths.values())


def test_the_loopback_goes_past_a_proxy(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert environment(tmp_path, URL)["NO_PROXY"] == "example.org,127.0.0.1,localhost"


def test_the_environment_comes_back(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_KEY", "secret")
    before = dict(os.environ)
    with activated(tmp_path, URL):
        assert os.environ["PREFECT_API_URL"] == URL
        assert "PREFECT_API_KEY" not in os.environ
    assert dict(os.environ) == before


def test_a_prefect_that_is_loaded_already_follows(tmp_path):
    from prefect.settings import get_current_settings

    with activated(tmp_path, URL):
        inside = get_current_settings()
        assert (inside.api.url, inside.home) == (URL, tmp_path)
    assert get_current_settings().api.url != URL


def test_settings_that_are_in_force_around_do_not_count(tmp_path):
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://around/api"}):
        with activated(tmp_path, URL):
            assert get_current_settings().api.url == URL
        assert get_current_settings().api.url == "http://around/api"


def test_prefect_knows_every_setting_by_this_name(tmp_path):
    from prefect.settings import Settings

    ours = environment(tmp_path, URL)
    with activated(tmp_path, URL):
        known = Settings().to_environment_variables(include_aliases=True)
    assert sorted(n for n in ours if n.startswith("PREFECT_") and n not in known) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("server.analytics_enabled", False),
        ("server.database.migrate_on_start", False),
        ("server.services.task_run_recorder.batch_size", 500),
        ("flows.heartbeat_frequency", 30),
        ("worker.query_seconds", 2),
        ("results.default_serializer", "json"),
        ("plugins.enabled", False),
    ],
)
def test_prefect_understands_the_values(tmp_path, path, expected):
    from prefect.settings import get_current_settings

    with activated(tmp_path, URL):
        value = get_current_settings()
        for name in path.split("."):
            value = getattr(value, name)
    assert value == expected


def test_prefect_reads_pyproject_from_the_working_directory(tmp_path):
    code = (
        "from prefect.settings import get_current_settings as s; p = s().plugins;"
        "print(p.enabled, *p.allow, s().server.analytics_enabled)"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPO,
        env=clean | {"PREFECT_HOME": str(tmp_path), "DO_NOT_TRACK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "opdflow", "False"]
