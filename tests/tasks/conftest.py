"""A step that counts its calls, and a look at how Prefect saw them."""

import logging
import time

import pytest
from pydantic import BaseModel

from core.recipe.runtime import Runtime
from tasks.caching import step

TERMINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Spec(BaseModel):
    """What the counting step depends on."""

    number: int
    seed: int = 0


@pytest.fixture
def runtime(tmp_path):
    return Runtime(store=tmp_path / "store", device="cpu")


@pytest.fixture
def counting():
    """A fresh step with its list of calls; ``counting.raises`` are raised one per call."""
    calls, raises = [], []

    @step(kind="number", version="1", delays_s=(0.01, 0.02))
    def write_number(context, spec, **parents):
        calls.append(spec.number)
        if raises:
            raise raises.pop(0)
        (context.out / "number.txt").write_text(str(spec.number))
        return {"number": spec.number}

    object.__setattr__(write_number, "calls", calls)
    object.__setattr__(write_number, "raises", raises)
    object.__setattr__(write_number, "spec", Spec)
    return write_number


@pytest.fixture
def in_flow(prefect_server, caplog):
    """Run a function as a flow; returns its state and its task runs, name to state, in order."""
    from prefect import flow

    def run(function):
        @flow(name="test-flow")
        def fake():
            return function()

        caplog.clear()
        with caplog.at_level(logging.INFO, "prefect.task_runs"):
            state = fake(return_state=True)
        ends = [r for r in caplog.records if r.getMessage().startswith("Finished in state")]
        tasks = [r for r in ends if r.name == "prefect.task_runs"]
        return state, {r.task_run_name: r.getMessage().split()[3].split("(")[0] for r in tasks}

    return run


@pytest.fixture
def recorded(prefect_server):
    """Wait until the server knows the task runs of a flow's state; they come as events."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    def wait(state, count):
        only = FlowRunFilter(id={"any_": [state.state_details.flow_run_id]})
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with get_client(sync_client=True) as client:
                runs = client.read_task_runs(flow_run_filter=only)
            if sum(r.state is not None and r.state.type.value in TERMINAL for r in runs) == count:
                return sorted(runs, key=lambda r: r.expected_start_time)
            time.sleep(0.1)
        raise AssertionError(f"not recorded: {runs}")

    return wait


@pytest.fixture
def call(counting, runtime):
    """Call the counting step; its call is a flow's whole body."""

    def make(number=1, runtime=runtime, name="one", **parents):
        return lambda: counting(counting.spec(number=number), runtime=runtime, name=name, **parents)

    return make


@pytest.fixture
def pointer(counting, prefect_session):
    """The file of Prefect's record for the counting step's call with a number."""
    home, _ = prefect_session

    def find(number):
        return (
            home / "results" / f"number-{counting.identity(counting.spec(number=number), {}).key}"
        )

    return find
