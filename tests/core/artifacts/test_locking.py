import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from core.artifacts.locking import locked, locked_if_free
from core.errors import StoreError

ROOT = Path(__file__).parents[3]

HOLDER = """
import sys, time
from pathlib import Path
from core.artifacts.locking import locked
with locked(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_file_is_gone_when_nobody_holds_it(tmp_path):
    with locked(tmp_path / "lock", "it"):
        assert (tmp_path / "lock").exists()
    assert not any(tmp_path.iterdir())


def test_a_second_holder_in_the_same_process_is_kept_out(tmp_path):
    path = tmp_path / "lock"
    with locked(path, "it"), locked_if_free(path, "it") as free:
        assert free is False
    with locked_if_free(path, "it") as free:
        assert free is True
    assert not any(tmp_path.iterdir())


def test_threads_take_turns(tmp_path):
    inside, most = [0], [0]

    def enter():
        with locked(tmp_path / "lock", "it"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert inside == [0]
    assert not any(tmp_path.iterdir())


def test_a_killed_holder_frees_the_way_at_once(tmp_path, holder):
    path = tmp_path / "lock"
    with locked_if_free(path, "it") as free:
        assert free is False
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    begun = time.perf_counter()
    with locked(path, "it"):
        assert time.perf_counter() - begun < 1.0


def test_a_forked_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path):
    # Tools run in child processes: one that outlives a killed builder must not block the next.
    path = tmp_path / "lock"
    code = HOLDER.replace("    time.sleep(60)", "    import os\n    os.fork()\n    time.sleep(60)")
    command = [sys.executable, "-c", code, str(path)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        time.sleep(0.2)
        process.kill()
        process.wait()
        with locked_if_free(path, "it") as free:
            assert free is True
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def test_a_failure_inside_frees_the_lock(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path / "lock", "it"):
        raise RuntimeError("inside")
    with locked_if_free(tmp_path / "lock", "it") as free:
        assert free is True


def test_who_waits_says_so(tmp_path, holder, caplog):
    def free_soon():
        time.sleep(0.1)
        holder.kill()

    caplog.set_level("INFO")
    thread = threading.Thread(target=free_soon)
    thread.start()
    with locked(tmp_path / "lock", "rollouts/toy"):
        assert "another process is building rollouts/toy: waiting" in caplog.text
    thread.join()


def test_a_lock_that_cannot_be_created_is_a_store_error(tmp_path):
    with (
        pytest.raises(StoreError, match="lock: cannot lock: No such file"),
        locked(tmp_path / "missing" / "lock", "it"),
    ):
        pass


def test_a_forked_child_that_unwinds_does_not_free_the_lock_of_its_parent(tmp_path):
    code = """
import os, sys
from pathlib import Path
from core.artifacts.locking import locked, locked_if_free
path = Path(sys.argv[1])
with locked(path, "it"):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        with locked_if_free(path, "it") as free:
            print(path.exists(), free)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
    assert done.stderr == ""
