import logging
import subprocess
import sys
from pathlib import Path

import pytest

from core.artifacts.code import CodeDigest
from core.artifacts.record import ArtifactRef, NumericClass
from core.errors import KeyEncodingError, StoreError
from core.recipe.runtime import Runtime
from tasks import caching
from tasks.caching import open_store, step

REPO = Path(__file__).parents[2]


# ---------------------------------------------------------------- without Prefect


def test_the_key_is_known_without_prefect_and_torch():
    script = (
        "import sys; from tests_step import write; from core.recipe.runtime import Runtime\n"
        "call = write.prepare(write.spec(number=1), runtime=Runtime(), name='one')\n"
        "assert len(call.request.identity.key) == 16\n"
        "assert not {'prefect', 'torch'} & set(sys.modules), 'imported'\n"
    )
    source = (
        "from pydantic import BaseModel\nfrom tasks.caching import step\n"
        "import tasks.caching\ntasks.caching._code = lambda *_: None\n"
        "class Spec(BaseModel):\n    number: int\n"
        "@step(kind='number', version='1')\ndef write(context, spec): ...\n"
        "object.__setattr__(write, 'spec', Spec)\n"
    )
    program = (
        f"import sys, types; m = types.ModuleType('tests_step'); exec({source!r}, m.__dict__)\n"
    )
    program += f"sys.modules['tests_step'] = m\n{script}"
    subprocess.run([sys.executable, "-c", program], cwd=REPO, check=True)


def test_the_key_is_made_of_task_version_spec_and_parents(counting, runtime):
    parent = ArtifactRef(kind="number", name="x", key="0" * 16, digest="ab" * 32)
    payload = counting.identity(counting.spec(number=3), {"origin": parent}).payload
    assert payload == {
        "task": "write_number",
        "version": "1",
        "spec": {"number": 3},
        "parents": {"origin": "ab" * 32},
    }


def test_runtime_is_not_in_the_key(counting, tmp_path):
    spec = counting.spec(number=3)
    runtimes = [
        Runtime(store=tmp_path),
        Runtime(store=tmp_path / "b", device="cpu", slots=3, threads=2, strict_code=True),
    ]
    keys = {counting.request(spec, runtime=r, name="n").identity.key for r in runtimes}
    assert len(keys) == 1
    assert keys == {counting.identity(spec, {}).key}


def test_the_name_is_not_in_the_key(counting, runtime):
    spec = counting.spec(number=3)
    keys = {counting.request(spec, runtime=runtime, name=n).identity.key for n in ("a", "b")}
    assert len(keys) == 1


def test_a_missing_parent_is_no_parent(counting):
    spec = counting.spec(number=3)
    assert counting.identity(spec, {"origin": None}).key == counting.identity(spec, {}).key


def test_a_call_runs_without_prefect(counting, runtime):
    prepared = counting.prepare(counting.spec(number=7, seed=5), runtime=runtime, name="one")
    ref = prepared.run()
    store = open_store(runtime.store)
    assert (store.path(ref) / "number.txt").read_text() == "7"
    record = store.record(ref)
    assert (record.metrics, record.provenance.seeds) == ({"number": 7}, {"seed": 5})
    assert counting.prepare(counting.spec(number=7, seed=5), runtime=runtime, name="b").found == ref
    assert counting.calls == [7]


def test_a_parent_is_verified_when_it_is_opened(runtime, counting):
    @step(kind="sum", version="1")
    def reads(context, spec, origin):
        (context.out / "copy.txt").write_text((context.path(origin) / "number.txt").read_text())

    origin = counting.prepare(counting.spec(number=7), runtime=runtime, name="one").run()
    spec = counting.spec(number=1)
    ref = reads.prepare(spec, runtime=runtime, name="r", origin=origin).run()
    assert (open_store(runtime.store).path(ref) / "copy.txt").read_text() == "7"

    altered = open_store(runtime.store).path(origin) / "number.txt"
    altered.write_text("8")
    with pytest.raises(StoreError, match="content was altered"):
        reads.prepare(counting.spec(number=2), runtime=runtime, name="r", origin=origin).run()


def test_changed_code_is_a_hit_that_names_the_functions(counting, runtime, monkeypatch, caplog):
    spec = counting.spec(number=1)
    monkeypatch.setattr(caching, "_code", lambda *_: CodeDigest(digest="a", functions={"f": "1"}))
    counting.prepare(spec, runtime=runtime, name="one").run()
    monkeypatch.setattr(caching, "_code", lambda *_: CodeDigest(digest="b", functions={"f": "2"}))
    with caplog.at_level(logging.WARNING, "tasks.caching"):
        assert counting.prepare(spec, runtime=runtime, name="one").found is not None
    assert "code has changed since it was built: f" in caplog.text


def test_strict_code_makes_changed_code_a_miss(counting, runtime, monkeypatch):
    spec = counting.spec(number=1)
    monkeypatch.setattr(caching, "_code", lambda *_: CodeDigest(digest="a", functions={"f": "1"}))
    counting.prepare(spec, runtime=runtime, name="one").run()
    monkeypatch.setattr(caching, "_code", lambda *_: CodeDigest(digest="b", functions={"f": "2"}))
    strict = runtime.model_copy(update={"strict_code": True})
    prepared = counting.prepare(spec, runtime=strict, name="one")
    assert prepared.found is None
    prepared.run()
    assert counting.calls == [1, 1]
    assert counting.prepare(spec, runtime=strict, name="one").found is not None


def test_a_step_may_say_its_numeric_class_while_it_runs(counting, runtime):
    known = NumericClass(device="cpu", physical_rows=32)

    @step(kind="measured", version="1", gpu=True)
    def measures(context, spec):
        context.record_numeric_class(known)
        (context.out / "x").write_text("x")

    ref = measures.prepare(counting.spec(number=1), runtime=runtime, name="one").run()
    assert open_store(runtime.store).record(ref).numeric_class == known


def test_what_cannot_be_hashed_is_refused_before_anything_runs(runtime):
    """C81: a step without a key would be computed again each time, in silence."""
    from pydantic import BaseModel, ConfigDict

    class Bad(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        where: Path

    @step(kind="number", version="1")
    def never(context, spec):
        raise AssertionError

    with pytest.raises(KeyEncodingError, match=r"spec\.where"):
        never(Bad(where=Path("x")), runtime=runtime, name="one")


def test_a_name_that_cannot_be_a_directory_is_refused(counting, runtime):
    with pytest.raises(StoreError, match="not a valid kind or name"):
        counting(counting.spec(number=1), runtime=runtime, name="a/b")


# ---------------------------------------------------------------- with Prefect

server = pytest.mark.server


@server
def test_a_second_run_is_cached(in_flow, call, counting):
    first, runs = in_flow(call())
    assert runs == {"write_number one": "Completed"}
    second, runs = in_flow(call())
    assert runs == {"write_number one": "Cached"}
    assert second.result() == first.result()
    assert counting.calls == [1]


@server
def test_strict_code_is_a_miss_for_prefect_too(in_flow, call, counting, runtime, monkeypatch):
    in_flow(call(number=18))
    monkeypatch.setattr(caching, "_code", lambda *_: CodeDigest(digest="b", functions={"f": "2"}))
    _, lenient = in_flow(call(number=18))
    strict = runtime.model_copy(update={"strict_code": True})
    _, once = in_flow(call(number=18, runtime=strict))
    _, twice = in_flow(call(number=18, runtime=strict))
    states = [runs["write_number one"] for runs in (lenient, once, twice)]
    assert states == ["Cached", "Completed", "Cached"]


@server
@pytest.mark.parametrize("expected", ["Completed", "Cached"])
def test_the_graph_knows_who_made_what(in_flow, recorded, counting, runtime, expected):
    def body():
        first = counting(counting.spec(number=1), runtime=runtime, name="a")
        counting(counting.spec(number=2), runtime=runtime, name="b", origin=first)

    if expected == "Cached":
        in_flow(body)
    state, _ = in_flow(body)
    origin, child = recorded(state, 2)
    assert (origin.state.name, child.state.name) == (expected, expected)
    assert [i.id for i in child.task_inputs["parents"]] == [origin.id]


@server
def test_what_can_pass_is_tried_three_times(in_flow, call, counting):
    counting.raises[:] = [MemoryError("first"), ConnectionResetError("second")]
    _, runs = in_flow(call())
    assert runs == {"write_number one": "Completed"}
    assert counting.calls == [1, 1, 1]


@server
@pytest.mark.parametrize("error", [StoreError("what", "do"), ValueError("x"), OSError(28, "full")])
def test_what_cannot_pass_is_tried_once(in_flow, call, counting, error):
    counting.raises[:] = [error]
    state, runs = in_flow(call())
    assert (runs, counting.calls) == ({"write_number one": "Failed"}, [1])
    with pytest.raises((StoreError, ValueError), match=r"what|x|cannot write"):
        state.result()


@server
def test_a_failed_step_leaves_no_pointer(in_flow, call, counting, pointer):
    counting.raises[:] = [ValueError("x")]
    in_flow(call(number=16))
    assert not pointer(16).exists()
    _, runs = in_flow(call(number=16))
    assert runs == {"write_number one": "Completed"}


@server
def test_what_core_logs_is_shown_beside_the_run(in_flow, counting, runtime, prefect_server):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import LogFilter

    from flows.server.connection import flush
    from flows.server.settings import SHARED

    assert SHARED["PREFECT_LOGGING_EXTRA_LOGGERS"] == ",".join(caching.LOGGED)

    @step(kind="number", version="1")
    def talks(context, spec):
        logging.getLogger("core.anything").info("half way through")
        (context.out / "x").write_text("x")

    state, _ = in_flow(lambda: talks(counting.spec(number=1), runtime=runtime, name="one"))
    flush()
    only = LogFilter(flow_run_id={"any_": [state.state_details.flow_run_id]})
    with get_client(sync_client=True) as client:
        logs = client.read_logs(log_filter=only)
    assert ("core.anything", "half way through") in {(log.name, log.message) for log in logs}
    assert all(log.task_run_id for log in logs if log.name == "core.anything")
