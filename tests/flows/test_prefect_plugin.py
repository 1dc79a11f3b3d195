import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from flows import prefect_plugin
from flows.prefect_plugin import expand, server_of_this_directory, setup_environment
from flows.server import daemons

REPO = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deployment run opd-cycle", "deployment run opd-cycle/opd-cycle"),
        ("deployments run opd-cycle", "deployments run opd-cycle/opd-cycle"),
        ("deployment inspect opd-cycle", "deployment inspect opd-cycle/opd-cycle"),
        ("deployment run opd-cycle -p a=b", "deployment run opd-cycle/opd-cycle -p a=b"),
        ("--profile x deployment run y", "--profile x deployment run y/y"),
        ("deployment run opd-cycle/opd-cycle", "deployment run opd-cycle/opd-cycle"),
        ("deployment run --id 123", "deployment run --id 123"),
        ("deployment run", "deployment run"),
        ("deployment ls", "deployment ls"),
        ("flow-run ls", "flow-run ls"),
        ("", ""),
    ],
)
def test_a_bare_name_is_flow_and_deployment(words, expected):
    assert expand(["prefect", *words.split()]) == ["prefect", *expected.split()]


@pytest.fixture
def process(monkeypatch, tmp_path):
    """This process, as if it were the ``prefect`` command in another home."""
    monkeypatch.setenv("OPD_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(sys, "argv", ["/venv/bin/prefect", "deployment", "run", "x"])
    yield tmp_path / "run" / "server.json"
    daemons.stop_strays(tmp_path / "run")


def test_without_a_server_only_the_arguments_change(process):
    setup_environment(ctx=None)
    assert sys.argv[-1] == "x/x"
    assert "PREFECT_API_URL" not in prefect_plugin.os.environ
    assert server_of_this_directory() is None


def test_the_server_of_this_directory_is_found(process, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "")  # so that it is taken back afterwards
    monkeypatch.delenv("PREFECT_API_URL")
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    daemons.start(process, sleep, {}, {"port": 4321})
    setup_environment(ctx=None)
    assert prefect_plugin.os.environ["PREFECT_API_URL"] == "http://127.0.0.1:4321/api"


def test_other_programs_keep_their_arguments(process, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/venv/bin/pytest", "deployment", "run", "x"])
    setup_environment(ctx=None)
    assert sys.argv[-1] == "x"


def test_a_server_that_the_user_chose_is_kept(process, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    monkeypatch.setattr(prefect_plugin, "server_of_this_directory", lambda: "http://here/api")
    setup_environment(ctx=None)
    assert prefect_plugin.os.environ["PREFECT_API_URL"] == "http://elsewhere/api"


def test_it_is_a_hook_of_this_prefect():
    from prefect._internal.plugins.manager import build_manager, register_hook
    from prefect._internal.plugins.spec import HookSpec

    assert prefect_plugin.hook.project_name == register_hook.project_name
    manager = build_manager(HookSpec)
    manager.register(prefect_plugin, name="opdflow")
    manager.check_pending()
    assert len(manager.hook.setup_environment.get_hookimpls()) == 1
    kinds = [p.kind for p in inspect.signature(setup_environment).parameters.values()]
    assert kinds == [inspect.Parameter.KEYWORD_ONLY]


def test_it_does_not_import_prefect():
    code = "import sys, flows.prefect_plugin; assert 'prefect' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=REPO, check=True)
