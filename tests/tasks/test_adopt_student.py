"""A run goes on from a student of another one, by content."""

import json

import pytest

from core.artifacts.store import Store
from core.errors import InputError, RecipeError
from core.recipe.loading import load
from flows.graphs.run import run_graph, stop_reason
from tasks.adopt_student import find_student


@pytest.fixture
def run(tmp_path, module_recipe):
    """Run the steps of the tiny recipe in one store."""
    store = Store(tmp_path / "store")

    def call_graph(*changes):
        loaded = load(module_recipe, [f"runtime.store={store.root}", *changes])

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

        return run_graph(loaded.recipe, call, lambda student: stop_reason(student, store))

    return call_graph, store


@pytest.fixture
def module_recipe(tmp_path):
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    place = Path(__file__).resolve().parents[1] / "flows" / "conftest.py"
    spec = spec_from_file_location("flows_conftest", place)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    path = tmp_path / "tiny.yaml"
    path.write_text(module.TINY)
    return path


def start_of(ref):
    return (f"run.start={ref.digest}", "cold_start=null")


def test_a_fork_starts_with_the_very_bytes_and_goes_on(run):
    """Three steps of the cold start, one of the first run, and one of its own."""
    call, store = run
    whole = call()
    first = whole.parts["student_0000"]
    fork = call(*start_of(first), "train.cycles=1")
    adopted = next(one for one in store.siblings("student") if one.task == "adopt_student")
    assert adopted.digest == first.digest
    assert adopted.metrics["adopted_from"] == f"{first.name}-{first.key}"
    state = json.loads((store.path(fork.student) / "state.json").read_text())
    assert state["counters"]["parameter_version"] == 5
    assert "cold_start" not in fork.parts
    assert call(*start_of(first), "train.cycles=1") == fork


def test_a_state_without_its_tensors_is_made_again_to_go_on_from(run):
    """Cleaning up leaves of a middle state its numbers; a fork must not end there for ever."""
    call, store = run
    first = call().parts["student_0000"]
    store.shed(first, [name for name in store.record(first).files if name.endswith(".safetensors")])
    assert store.find(first.key) is None
    call(*start_of(first), "train.cycles=1")
    adopted = next(one for one in store.siblings("student") if one.task == "adopt_student")
    assert (adopted.digest, store.find(first.key)) == (first.digest, first)


def test_a_fork_counts_its_bad_cycles_from_its_own_start(run):
    """As its budget does: the run that it left may have been stopped there."""
    call, store = run
    stop = ("train.stop_below_success=0.9", "train.stop_after_cycles=2")
    whole = call(*stop)
    second = whole.parts["student_0001"]
    assert json.loads((store.path(second) / "watch.json").read_text())["cycles_below_success"] == 2
    fork = call(*start_of(second), *stop, "train.cycles=3")
    seen = [
        json.loads((store.path(fork.parts[role]) / "watch.json").read_text())
        for role in ("student_0000", "student_0001")
    ]
    assert [one["cycles_below_success"] for one in seen] == [1, 2]


# ---------------------------------------------------------------- refusals


def test_an_altered_a_foreign_and_an_unknown_student_are_refused_before_a_model_is_built(
    run, monkeypatch
):
    call, store = run
    whole = call()
    first = whole.parts["student_0000"]
    monkeypatch.setattr(
        "core.training.opening.open_weights", lambda *_: pytest.fail("a model was touched")
    )
    larger = "models.student.toy.hidden_size=64"
    quiet = ("eval.baseline_enabled=false", "train.cycles=0")
    with pytest.raises(InputError, match="is of another student: its model differs"):
        call(*start_of(first), larger, *quiet)
    with pytest.raises(InputError, match="no student there has the content"):
        find_student(store, "0" * 64)
    weights = store.path(first) / "trainable.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(InputError, match="trainable"):
        find_student(store, first.digest)


def test_a_fork_with_a_cold_start_is_refused(run):
    call, _ = run
    with pytest.raises(RecipeError, match="cold_start"):
        call("run.start=" + "0" * 64)
