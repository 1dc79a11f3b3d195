"""What kinds of runs are called, from the rows of their steps to their summary."""

import json
from pathlib import Path

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load
from flows.graphs.run import run_graph
from flows.runs.summary import summarise_run

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
    """Run the recipe's steps with some changes; returns what it left, recipe and runtime."""

    def call_graph(*changes):
        loaded = load(RECIPE, [f"runtime.store={store}", *TINY, *changes])

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

        return run_graph(loaded.recipe, call), loaded.recipe, loaded.runtime

    return call_graph


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_supervised_training_goes_on_from_the_weights_of_a_cold_start_alone(run, store):
    fresh, *_ = run()
    done, recipe, runtime = run("run.mode=sft", "train.cycles=2")
    opened = Store(store)
    assert done.parts["cold_start"] == fresh.parts["cold_start"]
    cold, after = (
        json.loads((opened.path(ref) / "state.json").read_text())
        for ref in (done.parts["cold_start"], done.student)
    )
    assert (cold["moments_step"], after["moments_step"]) == (0, 2)
    assert after["counters"]["parameter_version"] == cold["counters"]["parameter_version"] + 2
    page = json.loads((opened.path(done.report) / "report.json").read_text())
    assert [point["stage"] for point in page["evaluations"]] == ["after SFT"]
    assert summarise_run(done, recipe, runtime, 0, 0)["method"] == "sft_cross_entropy"


def test_replay_is_called_so_in_every_place(run, store):
    steps = ("train.opd_freshness=replay", "train.gradient_accumulation_steps=2")
    done, recipe, runtime = run(*steps)
    opened = Store(store)
    rows = lines(opened.path(done.parts["student_0000"]) / "metrics.jsonl")
    assert [row["phase"] for row in rows] == ["online_distillation_with_replay"] * 2
    page = json.loads((opened.path(done.report) / "report.json").read_text())
    assert page["evaluations"][-1]["stage"] == "after online distillation with replay"
    said = f"{page['title']} {page['objective']} {page['mode']}"
    summary = summarise_run(done, recipe, runtime, 0, 0)
    assert summary["method"] == "online_distillation_with_replay"
    assert "after online distillation with replay" in summary["success"]
    assert "on-policy" not in said
    assert "online distillation with replay" in said
