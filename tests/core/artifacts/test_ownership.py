import json
import logging
import os
import signal
import socket
import subprocess
import sys

import pytest

from core.artifacts.ownership import owned, owner_of
from core.errors import RunOwnedError

HOLD = """
import sys
from pathlib import Path
from core.artifacts.ownership import owned
with owned(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """A process that owns the run directory until it is told or killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "runs" / "toy")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.fixture
def run(tmp_path):
    return tmp_path / "runs" / "toy"


def lock_of(run):
    return run.parent / ".locks" / "toy.lock"


def test_the_owner_says_who_it_is_and_leaves_nothing_behind(run):
    with owned(run):
        facts = json.loads(lock_of(run).read_text())
        assert (facts["pid"], facts["host"]) == (os.getpid(), socket.gethostname())
        assert str(os.getpid()) in owner_of(lock_of(run))
    assert not lock_of(run).exists()


def test_other_runs_are_free(run):
    with owned(run), owned(run.with_name("other")):
        assert lock_of(run).exists()


def test_who_waits_owns_it_as_soon_as_the_owner_ends(run, other):
    other.stdin.close()
    with owned(run, wait=True):
        assert json.loads(lock_of(run).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_the_dead_is_taken_over_at_once(run, other, number, caplog):
    other.send_signal(number)
    other.wait()
    assert lock_of(run).exists()
    with caplog.at_level(logging.INFO, "core.artifacts.ownership"), owned(run):
        assert json.loads(lock_of(run).read_text())["pid"] == os.getpid()
    assert f"taking over from process {other.pid}" in caplog.text


# ---------------------------------------------------------------- refusals


def test_a_second_start_is_refused_with_the_owner_s_facts(run, other):
    with pytest.raises(RunOwnedError) as refused, owned(run):
        raise AssertionError("owned twice")
    assert f"process {other.pid} on {socket.gethostname()} since 20" in refused.value.message
    assert "run.run_id=NAME" in refused.value.hint


def test_a_second_start_in_the_same_process_is_refused_too(run):
    with owned(run), pytest.raises(RunOwnedError), owned(run):
        raise AssertionError("owned twice")
    with owned(run):
        assert lock_of(run).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 3}'])
def test_facts_that_cannot_be_read_name_nobody(tmp_path, text):
    (tmp_path / "lock").write_text(text)
    assert owner_of(tmp_path / "lock") == "another process"
