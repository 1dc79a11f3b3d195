import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from core.errors import ServerError
from flows.server import daemons
from flows.server.connection import (
    api_url,
    bind,
    embedded,
    in_process,
    make_home,
    running_server,
    server_file,
    wait_until_up,
)

REPO = Path(__file__).parents[3]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]

RUN = """
import logging, sys
from pathlib import Path
from pydantic import BaseModel
import tasks.caching
from core.recipe.runtime import Runtime
from flows.server.connection import server
from tasks.caching import step
tasks.caching._code = lambda module, plugins: None  # this program is not a module of the repository
class Spec(BaseModel):
    number: int
@step(kind="number", version="1", gpu=True)
def write(context, spec, **parents):
    logging.getLogger("core.x").info("quiet")
    if spec.number == 19:
        logging.getLogger("core.x").warning("loud")
    (context.out / "x").write_text(str(spec.number))
runtime = Runtime(store=Path(sys.argv[2]), device="cpu")
with server(Path(sys.argv[1])) as url:
    from prefect import flow
    @flow(name="twenty")
    def twenty():
        ref = None
        for number in range(20):
            ref = write(Spec(number=number), runtime=runtime, name=f"n-{number}", before=ref)
    twenty()
print(url, "torch" in sys.modules)
"""
"""A program with a flow of twenty steps: ``HOME STORE``."""


@pytest.fixture
def home(tmp_path, prefect_session):
    """A home whose database is up to date already, so that starting is quick."""
    home = tmp_path / "home"
    make_home(home)
    source, _ = prefect_session
    with sqlite3.connect(source / "prefect.db") as old, sqlite3.connect(home / "prefect.db") as new:
        old.backup(new)
        new.execute("DELETE FROM task_run")
        new.execute("DELETE FROM flow_run")
    shutil.copy(source / "migrated.json", home)
    yield home
    daemons.stop_strays(home / "run")


def program(text, *arguments, **options):
    line = [sys.executable, "-c", text, *map(str, arguments)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, cwd=REPO, env=clean, **pipes, **options)


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out, err


def history(home):
    """Flow runs of a home with the number and states of their task runs, in order."""
    query = """
        SELECT f.state_name, count(t.id), group_concat(DISTINCT t.state_name)
        FROM flow_run f LEFT JOIN task_run t ON t.flow_run_id = f.id
        GROUP BY f.id ORDER BY f.created
    """
    with sqlite3.connect(home / "prefect.db") as database:
        return database.execute(query).fetchall()


def gone(pid):
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()


# ---------------------------------------------------------------- embedded


@pytest.mark.server
@pytest.mark.slow
def test_a_run_leaves_its_history_and_nothing_running_and_a_cached_one_needs_no_torch(
    home, tmp_path
):
    first, said = finish(program(RUN, home, tmp_path / "store"))
    second, silence = finish(program(RUN, home, tmp_path / "store"))
    assert history(home) == [("Completed", 20, "Completed"), ("Completed", 20, "Cached")]
    # The terminal belongs to the run; of what is logged it shows warnings only. Where the machine
    # is busy with other things Prefect warns that its last events are still on their way.
    said, silence = (
        [line for line in text.splitlines() if "EventsWorker - Still processing" not in line]
        for text in (said, silence)
    )
    assert silence == []
    assert len(said) == 1
    assert "loud" in said[0]
    assert second.split()[1] == "False"
    urls = [out.split()[0] for out in (first, second)]
    for url in urls:
        port = int(re.search(r":(\d+)/", url).group(1))
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.server
def test_an_embedded_server_dies_with_its_killed_parent(home):
    text = """
        import time
        from pathlib import Path
        from flows.server import connection
        real = connection.subprocess.Popen
        def spy(*arguments, **options):
            process = real(*arguments, **options)
            print(process.pid, flush=True)
            return process
        connection.subprocess.Popen = spy
        with connection.embedded(Path({home!r})) as url:
            connection.wait_until_up(url, Path({home!r}))
            print("up", flush=True)
            time.sleep(60)
    """
    parent = program(textwrap.dedent(text.format(home=str(home))))
    with parent:
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(signal.SIGKILL)
        assert gone(child)


@pytest.mark.server
def test_it_dies_too_when_killed_while_starting(home):
    text = f"""
        import os, signal
        from pathlib import Path
        from flows.server import connection
        with connection.embedded(Path({str(home)!r})):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    with program(textwrap.dedent(text)) as parent:
        parent.wait()
    deadline = time.monotonic() + 15
    command = f"cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c 'OPD_HOME={home}$'"
    while time.monotonic() < deadline:
        left = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        if left.stdout.strip() == "0":
            return
        time.sleep(0.1)
    raise AssertionError(left.stdout)


@pytest.mark.server
@pytest.mark.slow
def test_two_runs_may_start_on_a_new_home_at_once(tmp_path):
    both = [program(RUN, tmp_path / "home", tmp_path / "store") for _ in range(2)]
    urls = {finish(process)[0].split()[0] for process in both}
    assert len(urls) == 2
    states = history(tmp_path / "home")
    assert [state[:2] for state in states] == [("Completed", 20), ("Completed", 20)]


@pytest.mark.server
@pytest.mark.slow
def test_an_interrupt_is_for_the_flow_not_for_the_server(home):
    text = f"""
        import os, signal, time
        from pathlib import Path
        from flows.server import connection
        with connection.embedded(Path({str(home)!r})) as url:
            connection.wait_until_up(url, Path({str(home)!r}))
            try:
                os.killpg(0, signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                time.sleep(0.5)
            connection.wait_until_up(url, Path({str(home)!r}))
            print("answers")
    """
    out, _ = finish(program(textwrap.dedent(text), start_new_session=True))
    assert out == "answers\n"


@pytest.mark.server
def test_flows_of_this_process_have_no_heartbeat(prefect_server):
    from prefect.settings import get_current_settings

    assert get_current_settings().flows.heartbeat_frequency is None
    with in_process():
        assert get_current_settings().api.url == prefect_server
        assert get_current_settings().flows.heartbeat_frequency is None


@pytest.mark.server
def test_a_server_that_cannot_start_is_an_error_of_two_lines(tmp_path):
    make_home(tmp_path / "home")
    (tmp_path / "home" / "prefect.db").write_text("this is no database" * 100)
    with embedded(tmp_path / "home") as url, pytest.raises(ServerError) as caught:
        wait_until_up(url, tmp_path / "home")
    assert str(caught.value).count("\n") == 1
    assert "not a database" in (tmp_path / "home" / "embedded.log").read_text()


def test_a_home_that_cannot_be_created_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match="cannot be created: Not a directory\nSet OPD_HOME"):
        make_home(tmp_path / "file" / "home")


def test_a_home_is_private(tmp_path):
    make_home(tmp_path / "home")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home" / "results").stat().st_mode & 0o777 == 0o700


def test_a_busy_port_is_refused():
    with bind(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError) as caught:
            bind(port)
    assert caught.value.message == f"port {port} cannot be used: Address already in use"
    assert f"--port {port + 1}" in caught.value.hint


# ---------------------------------------------------------------- the server of `opd up`


def test_where_nothing_runs_there_is_no_server(tmp_path):
    assert running_server(tmp_path) is None


def test_a_server_of_another_version_is_refused(home):
    daemons.start(server_file(home), SLEEP, {}, {"port": 4200, "version": "3.0.0"})
    with pytest.raises(ServerError) as caught:
        running_server(home)
    assert caught.value.message.startswith("the running server is Prefect 3.0.0, but 3.")
    assert caught.value.hint == "Run `opd down`, then `opd up`."


def test_a_server_that_does_not_answer_is_refused(home):
    from importlib.metadata import version

    with bind(0) as listener:
        port = listener.getsockname()[1]
    facts = {"port": port, "version": version("prefect")}
    daemons.start(server_file(home), SLEEP, {}, facts)
    with pytest.raises(ServerError, match=f"{api_url(port)} does not answer"):
        running_server(home)
