"""Offline distillation, through the graph that asks for a data set."""

import json
from pathlib import Path

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load
from flows.graphs.run import run_graph

RECIPE = Path("recipes/objectives/reverse_kl.yaml")
TINY = (
    *("models.teacher.toy_pretrain_steps=2", "models.teacher.toy_pretrain_batch_size=4"),
    *("environment.train_tasks=12", "environment.eval_tasks=4", "environment.test_tasks=4"),
    *("cold_start.demonstrations=8", "cold_start.cycles=2", "cold_start.rollouts_per_cycle=4"),
    *("train.rollouts_per_cycle=4", "train.gradient_accumulation_steps=4"),
    *("train.cycles=1", "train.warmup_steps=0", "eval.baseline_enabled=false"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("kinds") / "store"


@pytest.fixture
def run(store):
    """Run the recipe's steps with some changes; returns what it left."""

    def call_graph(*changes):
        loaded = load(RECIPE, [f"runtime.store={store}", *TINY, *changes])

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

        return run_graph(loaded.recipe, call)

    return call_graph


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


OFFLINE = ("run.mode=offline_kd", "cache.reuse_across_policy_versions=true")
FROZEN = (
    *OFFLINE,
    "offline_kd.trajectory_source=frozen_student",
    "offline_kd.collection_tasks=6",
)


@pytest.mark.parametrize(("changes", "source"), [(OFFLINE, "oracle"), (FROZEN, "frozen_student")])
def test_offline_distillation_scores_one_data_set_and_replays_it(run, store, changes, source):
    fresh = run("train.cycles=2")
    done = run(*changes, "train.cycles=2")
    opened = Store(store)
    assert done.parts["cold_start"] == fresh.parts["cold_start"]
    assert not any(role.startswith(("rollouts", "targets")) for role in done.parts)
    found = json.loads((opened.path(done.dataset) / "manifest.json").read_text())
    assert found["source"] == source
    cold = json.loads((opened.path(done.parts["cold_start"]) / "state.json").read_text())
    if source == "frozen_student":
        assert found["student_digest"] == cold["digest"]
        assert found["policy_version"] == cold["counters"]["parameter_version"]
        assert found["episodes"] == len(found["task_ids"]) == 6
    rows = [
        lines(opened.path(done.parts[f"student_{cycle:04d}"]) / "metrics.jsonl")[0]
        for cycle in (0, 1)
    ]
    assert {row["phase"] for row in rows} == {"offline_kd"}
    assert {row["rollout_policy_version"] for row in rows} == {found["policy_version"]}
    assert rows[1]["parameter_version"] == rows[0]["parameter_version"] + 1
    page = json.loads((opened.path(done.report) / "report.json").read_text())
    assert page["evaluations"][-1]["stage"] == "after offline KD"
    again = run(*changes, "train.cycles=3")
    assert again.dataset == done.dataset


def task_ids(run, store, *changes):
    path = Store(store).path(run(*FROZEN, *changes).dataset)
    return json.loads((path / "manifest.json").read_text())["task_ids"]


def test_a_data_set_passes_over_as_many_tasks_as_sampling_does(run, store):
    everything = task_ids(run, store)
    assert task_ids(run, store, "train.first_task=2")[:4] == everything[2:]
