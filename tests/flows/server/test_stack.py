"""One real stack: server, two workers and a deployment, also after parts of it were killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.errors import ServerError
from flows.server import daemons, stack
from flows.server.connection import api_url, bind, make_home, server_file
from flows.server.stack import StackStatus, down, status, up

REPO = Path(__file__).parents[3]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]

FLOWS = """
import time
from pathlib import Path
from prefect import flow

@flow(name="fake-cycle")
def fake_cycle(seconds: float = 0.0, note: str | None = None):
    Path("begun.txt").write_text(__import__("os").environ["PREFECT_RESULTS_LOCAL_STORAGE_PATH"])
    time.sleep(seconds)
    Path("done.txt").write_text(str(note))
"""

PREFECT_YAML = """
name: fake
deployments:
  - name: fake-cycle
    entrypoint: fakeflows.fake_cycle
    parameters: {note: from the deployment}
    work_pool: {name: gpu}
"""


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def free_port():
    with bind(0) as listener:
        return listener.getsockname()[1]


# ---------------------------------------------------------------- without Prefect


def test_outside_a_checkout_there_is_nothing_to_start(tmp_path):
    with pytest.raises(ServerError, match=r"prefect\.yaml: no such file\nRun `opd up` in the root"):
        up(home=tmp_path / "home", root=tmp_path)
    assert not (tmp_path / "home").exists()


def test_a_worker_takes_at_least_one_run(tmp_path):
    with pytest.raises(ServerError, match=r"--arms 0: a worker takes at least one run"):
        up(home=tmp_path / "home", root=REPO, arms=0)


def test_a_worker_that_runs_is_not_asked_for_another_number_of_runs(tmp_path):
    file = tmp_path / "run" / "worker-gpu.json"
    daemons.start(file, SLEEP, os.environ, {"pool": "gpu", "limit": 2})
    try:
        with pytest.raises(ServerError, match=r"takes 2 runs at once already\nLeave out --arms"):
            up(home=tmp_path, root=REPO, arms=3)
    finally:
        daemons.stop(file)


def test_a_busy_port_is_refused_and_nothing_is_left(tmp_path):
    with bind(0) as taken, pytest.raises(ServerError, match="Address already in use"):
        up(home=tmp_path / "home", port=taken.getsockname()[1], root=REPO)
    assert status(tmp_path / "home") == StackStatus(
        api=None, home=str(tmp_path / "home"), workers={"gpu": None, "ctl": None}
    )


def test_nothing_to_stop_is_no_error(tmp_path):
    assert down(tmp_path / "home") == "nothing was running"
    assert str(status(tmp_path / "home")).startswith("nothing is running")


def test_another_port_than_the_running_server_s_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "running_server", lambda home: api_url(4300))
    with pytest.raises(ServerError, match=r"running already, at \S+:4300\nLeave out"):
        up(home=tmp_path / "home", port=4301, root=REPO)


def test_without_a_port_a_running_server_is_taken_wherever_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "running_server", lambda home: api_url(4300))
    assert stack._start_server(tmp_path, None) == api_url(4300)


@pytest.mark.parametrize("port", [-1, 0, 65_536, 99_999])
def test_a_number_that_is_no_port_is_refused(tmp_path, port):
    with pytest.raises(ServerError, match=rf"{port} is no port\n"):
        up(home=tmp_path / "home", port=port, root=REPO)
    assert not (tmp_path / "home").exists()


def test_a_half_dead_stack_is_stopped(tmp_path):
    make_home(tmp_path)
    daemons.start(server_file(tmp_path), SLEEP, {}, {"port": 4200, "version": "x"})
    worker = daemons.start(tmp_path / "run" / "worker-gpu.json", SLEEP, {}, {})
    os.kill(worker["pid"], signal.SIGKILL)
    assert eventually(lambda: status(tmp_path).workers["gpu"] is None)
    assert status(tmp_path).api == "http://127.0.0.1:4200/api"
    assert down(tmp_path) == "stopped server"
    assert daemons.strays(tmp_path / "run") == []


def test_a_status_can_be_read_by_people_and_programs():
    found = StackStatus("http://127.0.0.1:4200/api", "/h", {"gpu": 12, "ctl": None})
    assert str(found).splitlines() == [
        "UI       http://127.0.0.1:4200",
        "worker   gpu  process 12",
        "worker   ctl  not running",
        "home     /h",
    ]
    assert found.as_document()["workers"] == {"gpu": 12, "ctl": None}
    assert not found.complete


# ---------------------------------------------------------------- with Prefect


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout with one fake flow, whose home is ``.opd/prefect``."""
    (tmp_path / "deployments").mkdir()
    (tmp_path / "deployments" / "prefect.yaml").write_text(PREFECT_YAML)
    (tmp_path / "fakeflows.py").write_text(FLOWS)
    (tmp_path / "pyproject.toml").write_text((REPO / "pyproject.toml").read_text())
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "OPD_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{REPO}")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    down()
    assert daemons.strays(tmp_path / ".opd/prefect/run") == []


def prefect(*words):
    """What a user types in the checkout, with nothing but that directory to go by."""
    program = Path(sys.executable).with_name("prefect")
    environment = os.environ | {"DO_NOT_TRACK": "1", "PREFECT_HOME": str(Path.cwd() / "elsewhere")}
    done = subprocess.run(
        [str(program), *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.server
@pytest.mark.slow
def test_a_stack_from_up_to_down(root):
    port = free_port()
    first = up(port=port)
    assert first.complete
    assert first.api == api_url(port)

    again = up(port=port)  # idempotent
    assert again == first

    # The literal command, a bare name.
    assert "'fake-cycle/fake-cycle'" in prefect("deployment", "run", "fake-cycle")
    assert eventually((root / "done.txt").exists)
    assert (root / "done.txt").read_text() == "from the deployment"
    results = root / ".opd/prefect/results"
    assert (root / "begun.txt").read_text() == str(results)

    # The full name, with a parameter.
    prefect("deployment", "run", "fake-cycle/fake-cycle", "-p", "note=mine")
    assert eventually(lambda: (root / "done.txt").read_text() == "mine")

    # Kill the worker while its flow run is alive: the run is an orphan in a session of its own.
    (root / "begun.txt").unlink()
    prefect("deployment", "run", "fake-cycle", "-p", "seconds=600")
    assert eventually((root / "begun.txt").exists)
    os.kill(first.workers["gpu"], signal.SIGKILL)
    assert eventually(lambda: status().workers["gpu"] is None)

    # What is missing is started again, and the rest is left alone.
    repaired = up(port=port)
    assert repaired.complete
    assert repaired.workers["ctl"] == first.workers["ctl"]

    os.kill(repaired.workers["ctl"], signal.SIGKILL)
    assert eventually(lambda: status().workers["ctl"] is None)
    assert down() == "stopped worker-gpu, server, 1 flow run"
    assert daemons.strays(root / ".opd/prefect/run") == []
    assert not status().complete
    assert not (root / "elsewhere" / "profiles.toml").exists()


@pytest.mark.server
@pytest.mark.slow
def test_what_cannot_be_deployed_is_an_error_of_two_lines(root):
    (root / "fakeflows.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(ServerError) as caught:
        up(port=free_port())
    assert "deployments/prefect.yaml cannot be deployed" in caught.value.message
    assert str(caught.value).count("\n") == 1
    assert caught.value.hint.startswith("Run `prefect --no-prompt deploy --all --prefect-file")
