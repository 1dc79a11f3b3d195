import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from core.recipe.runtime import Runtime
from tasks import gpu
from tasks.gpu import device_kind, ensure_limit, gpu_slot, machine_lock, uses_cuda
from tasks.labels import default_numeric_class

HOLD = """
import sys, time
from pathlib import Path
from tasks.gpu import machine_lock
with machine_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    """Pretend that this machine has an H200."""
    device = tmp_path / "gpus" / "0000:19:00.0"
    device.mkdir(parents=True)
    (device / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 34\n")
    (tmp_path / "node").touch()
    monkeypatch.setattr(gpu, "NODES", (str(tmp_path / "node"),))
    monkeypatch.setattr(gpu, "DRIVER", tmp_path / "gpus")
    monkeypatch.setattr(gpu, "LOCK", tmp_path / "gpu.lock")
    monkeypatch.setattr(gpu, "_torch_has_cuda", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def free(path):
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_cpu_is_a_cpu(cuda):
    assert device_kind(Runtime(device="cpu")) == "cpu"
    assert not uses_cuda(Runtime(device="cpu"))


def test_auto_takes_a_gpu_that_is_there(cuda):
    assert device_kind(Runtime()) == "cuda:NVIDIA H200"
    assert default_numeric_class(None, Runtime()).device == "cuda:NVIDIA H200"


def test_auto_stays_on_the_cpu_where_torch_cannot_use_the_gpu(cuda, monkeypatch):
    monkeypatch.setattr(gpu, "_torch_has_cuda", lambda: False)
    assert device_kind(Runtime()) == "cpu"
    assert device_kind(Runtime(device="cuda")) == "cuda:NVIDIA H200"


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_devices_are_not_there(cuda, monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert not uses_cuda(Runtime())


def test_the_cpu_needs_no_slot_and_no_server(monkeypatch):
    monkeypatch.setattr(gpu, "ensure_limit", lambda: pytest.fail("asked a server"))
    with gpu_slot(Runtime(device="cpu")), gpu_slot(Runtime(device="cuda", gpu_slot=False)):
        pass


def test_one_process_at_a_time_holds_the_machine(tmp_path):
    path = tmp_path / "lock"
    with machine_lock(path):
        assert not free(path)
    assert free(path)


def test_a_killed_holder_frees_the_machine(tmp_path):
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        assert not free(path)
        holder.send_signal(signal.SIGKILL)
        with machine_lock(path):
            pass


def test_a_forked_child_does_not_keep_the_machine(tmp_path):
    path = tmp_path / "lock"
    fork = multiprocessing.get_context("fork")
    with machine_lock(path):
        child = fork.Process(target=time.sleep, args=(60,))
        child.start()
    try:
        deadline = time.monotonic() + 10
        while not free(path) and time.monotonic() < deadline:  # until the child has started
            time.sleep(0.01)
        assert free(path)
    finally:
        child.kill()
        child.join()


def test_a_lock_of_another_user_will_do(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    path.touch()
    real = os.open

    def refuse(name, flags, *mode):
        if flags & os.O_CREAT:
            raise PermissionError(13, "sticky directory")
        return real(name, flags, *mode)

    monkeypatch.setattr(os, "open", refuse)
    with machine_lock(path):
        assert not free(path)


@pytest.mark.server
def test_the_limit_is_created_once_and_left_alone(prefect_server):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate

    ensure_limit()
    with get_client(sync_client=True) as client:
        assert client.read_global_concurrency_limit_by_name("gpu").limit == 1
        client.update_global_concurrency_limit("gpu", GlobalConcurrencyLimitUpdate(limit=2))
        ensure_limit()
        assert client.read_global_concurrency_limit_by_name("gpu").limit == 2
        client.update_global_concurrency_limit("gpu", GlobalConcurrencyLimitUpdate(limit=1))


@pytest.mark.server
def test_steps_take_turns_on_the_gpu(prefect_server, cuda):
    inside, most = [], []

    def work():
        with gpu_slot(Runtime()):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.05)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1]


@pytest.mark.server
def test_a_gpu_step_holds_the_slot_and_a_cached_one_does_not(
    in_flow, counting, runtime, cuda, monkeypatch
):
    from tasks.caching import step

    taken = []

    @step(kind="number", version="1", gpu=True)
    def on_gpu(context, spec):
        taken.append(not free(cuda / "gpu.lock"))
        (context.out / "x").write_text("x")

    spec, on_cuda = counting.spec(number=1), runtime.model_copy(update={"device": "cuda"})
    in_flow(lambda: on_gpu(spec, runtime=on_cuda, name="one"))
    assert taken == [True]
    monkeypatch.setattr(gpu, "ensure_limit", lambda: pytest.fail("took the slot"))
    _, runs = in_flow(lambda: on_gpu(spec, runtime=on_cuda, name="one"))
    assert runs == {"on_gpu one": "Cached"}
