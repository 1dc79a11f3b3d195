"""Cleaning up leaves what a benchmark shows, whether or not its arms have directories."""

import json
import os

import pytest

from core.artifacts.retention import apply_retention, plan_retention
from core.artifacts.store import Store
from core.errors import InputError
from core.recipe.loading import load
from core.runs.registry import register_run
from flows.commands.audit import kept_runs
from flows.graphs.arm import arm_graph
from flows.graphs.run import Gate, never_stopped


@pytest.fixture
def benchmark(recipe_file, overrides, tmp_path):
    """One arm on one seed that has no run directory, and a benchmark that shows it."""
    loaded = load(recipe_file, [*overrides, "train.cycles=4"])

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    arm = arm_graph(loaded.recipe, call, never_stopped, Gate())
    place = tmp_path / "runs" / "benchmark-toy"
    place.mkdir(parents=True)
    register_run(loaded.runtime.store, place)
    return place, arm, Store(loaded.runtime.store)


def status(place, state, result):
    shown = result and result.model_dump()
    (place / "status.json").write_text(
        json.dumps([{"arm": "a", "seed": 1, "state": state, "result": shown}])
    )


def clean(store):
    plan = plan_retention(store.root, kept_runs([], store.root), min_age_s=0.0)
    apply_retention(store.root, plan)
    return [(one.action, one.ref.kind) for one in plan.removals]


def test_an_arm_without_a_directory_keeps_what_it_was_made_from_and_its_last_states(benchmark):
    place, arm, store = benchmark
    status(place, "cached", arm.result)
    assert set(clean(store)) == {("shed", "student"), ("prune", "report")}
    assert store.find(arm.result.key) == arm.result
    assert store.find(arm.run.student.key) == arm.run.student
    assert store.find(arm.run.parts["student_0002"].key) is not None
    assert store.find(arm.run.parts["student_0001"].key) is None


@pytest.mark.parametrize("state", ["waiting", "running", "failed"])
def test_nothing_that_a_benchmark_computed_goes_before_it_is_answered(benchmark, state):
    place, arm, store = benchmark
    entry = next((store.root / ".runs").iterdir())
    os.utime(entry, (0, 0))  # it began before all of this
    status(place, state, None)
    assert clean(store) == []
    assert store.find(arm.run.parts["student_0000"].key) is not None


def test_what_a_removed_benchmark_needed_goes(benchmark):
    assert ("prune", "arm") in clean(benchmark[-1])


def test_a_damaged_status_stops_the_clean_up(benchmark):
    place, _, store = benchmark
    (place / "status.json").write_text("[{}]")
    with pytest.raises(InputError, match="what the benchmark needs is not known"):
        clean(store)
