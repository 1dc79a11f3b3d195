import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.server import daemons

REPO = Path(__file__).parents[3]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
CHILD = "import time; time.sleep(60)"


@pytest.fixture
def file(tmp_path):
    yield tmp_path / "run" / "one.json"
    daemons.stop_strays(tmp_path / "run")


def eventually(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_daemon_is_found_by_its_file(file):
    told = daemons.start(file, SLEEP, {}, {"port": 4200})
    assert daemons.read(file) == told
    assert told["port"] == 4200
    assert daemons.strays(file.parent) == [told["pid"]]


def test_there_is_none_where_none_was_started(file):
    assert daemons.read(file) is None
    daemons.stop(file)


def test_a_killed_daemon_is_known_to_be_dead(file):
    told = daemons.start(file, SLEEP, {}, {})
    daemons.os.kill(told["pid"], signal.SIGKILL)
    assert eventually(lambda: daemons.read(file) is None)
    assert file.exists()


def test_a_dead_daemon_s_number_is_not_killed(file, monkeypatch):
    told = daemons.start(file, SLEEP, {}, {})
    daemons.os.kill(told["pid"], signal.SIGKILL)
    eventually(lambda: daemons.read(file) is None)
    killed = []
    monkeypatch.setattr(daemons.os, "kill", lambda *target: killed.append(target))
    monkeypatch.setattr(daemons.os, "killpg", lambda *target: killed.append(target))
    daemons.stop(file)
    assert killed == []


def test_stopping_ends_the_whole_group(file):
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
    daemons.start(file, [sys.executable, "-c", code], {}, {})
    assert eventually(lambda: len(daemons.strays(file.parent)) == 2)
    daemons.stop(file)
    assert eventually(lambda: daemons.strays(file.parent) == [])
    assert not file.exists()


def test_a_daemon_that_ignores_the_request_is_killed(file, monkeypatch):
    monkeypatch.setattr(daemons, "TERM_S", 0.3)
    code = f"import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); {CHILD}"
    daemons.start(file, [sys.executable, "-c", code], {}, {})
    assert eventually(lambda: file.with_suffix(".log").read_text() == "1\n")
    daemons.stop(file)
    assert daemons.read(file) is None
    assert eventually(lambda: daemons.strays(file.parent) == [])


def test_orphans_in_sessions_of_their_own_are_found(file):
    code = (
        "import subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-c', {CHILD!r}], start_new_session=True)"
    )
    daemons.start(file, [sys.executable, "-c", code], {}, {})
    assert eventually(lambda: daemons.read(file) is None)
    assert len(daemons.strays(file.parent)) == 1
    assert daemons.stop_strays(file.parent) == 1
    assert daemons.strays(file.parent) == []


def test_one_may_be_spared(file):
    told = daemons.start(file, SLEEP, {}, {})
    assert daemons.stop_strays(file.parent, spared=told["pid"]) == 0
    assert daemons.read(file) == told


def test_a_daemon_hears_interrupts_even_where_its_starter_does_not(file):
    starter = (
        "import signal, sys; from pathlib import Path; from flows.server import daemons\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = 'import signal; print(signal.getsignal(2) is signal.default_int_handler)'\n"
        f"daemons.start(Path({str(file)!r}), [sys.executable, '-c', child], {{}}, {{}})\n"
    )
    subprocess.run([sys.executable, "-c", starter], cwd=REPO, check=True)
    assert eventually(lambda: file.with_suffix(".log").read_text() == "True\n")


def test_only_one_holds_a_lock(tmp_path):
    order = tmp_path / "order"
    code = (
        "import time; from pathlib import Path; from flows.server import daemons\n"
        f"with daemons.held(Path({str(tmp_path / 'lock')!r})), open({str(order)!r}, 'a') as f:\n"
        "    f.write('in '); f.flush(); time.sleep(0.2); f.write('out ')\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=REPO) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert order.read_text() == "in out in out "
