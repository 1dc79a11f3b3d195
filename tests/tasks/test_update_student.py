"""Budgets end whole runs, without Prefect."""

import json
from pathlib import Path

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load
from flows.graphs.run import run_graph, stop_reason

TOY = Path("recipes/toy.yaml")
TINY = (
    *("models.teacher.toy_pretrain_steps=2", "models.teacher.toy_pretrain_batch_size=4"),
    *("environment.train_tasks=12", "environment.eval_tasks=4", "environment.test_tasks=4"),
    *("train.rollouts_per_cycle=4", "train.gradient_accumulation_steps=4"),
    *("train.warmup_steps=0", "train.eval_every_cycles=0", "eval.baseline_enabled=false"),
)
COLD = ("cold_start.demonstrations=8", "cold_start.cycles=2", "cold_start.rollouts_per_cycle=4")


@pytest.fixture
def run(tmp_path):
    """Run the steps of the cut toy recipe in one store."""

    def call_graph(*changes):
        loaded = load(TOY, [f"runtime.store={tmp_path}", *TINY, *changes])
        opened = Store(tmp_path)

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

        return run_graph(loaded.recipe, call, lambda student: stop_reason(student, opened))

    return call_graph


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("key", "axis"),
    [
        ("max_selected_training_tokens=150", "selected_training_tokens"),
        ("max_generated_tokens=150", "generated_tokens"),
        ("max_wall_seconds=0.001", "wall_time"),
    ],
)
def test_a_spent_budget_ends_the_run_and_is_in_state_record_and_report(run, tmp_path, key, axis):
    changes = (*COLD, "train.cycles=9", f"train.{key}")
    done = run(*changes)
    assert done.stopped == axis
    opened = Store(tmp_path)
    spent = json.loads((opened.path(done.student) / "budget.json").read_text())
    assert spent == opened.record(done.student).metrics["budget"]
    assert (spent["axis"], spent["stopped"]) == (axis, axis)
    assert spent["actual"] >= spent["target"]
    if axis != "wall_time":
        assert spent["actual"] == 150
    page = opened.path(done.report)
    assert json.loads((page / "report.json").read_text())["budget"] == spent
    assert "it ended the run" in (page / "report.html").read_text()
    assert run(*changes) == done


def test_a_supervised_run_spends_its_budget_inside_its_one_step(run, tmp_path):
    budget = "train.max_selected_training_tokens=333"
    done = run("run.mode=sft", "cold_start=null", "train.cycles=20", budget)
    assert done.stopped == "selected_training_tokens"
    rows = lines(Store(tmp_path).path(done.student) / "metrics.jsonl")
    assert sum(row["selected_positions"] for row in rows) == 333
