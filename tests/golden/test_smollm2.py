"""A small cut of recipes/smollm2.yaml on the real weights: two cycles, to a report."""

import json
import os
from pathlib import Path

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load
from flows.graph import run_graph
from flows.sources import locate_models

REPO = Path(__file__).resolve().parents[2]
MODEL = Path(os.environ.get("OPD_SMOLLM2", REPO / "models" / "smollm2-135m-instruct"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not MODEL.is_dir(), reason=f"needs {MODEL}; the README says how to make it from PyPI"
    ),
]

CUT = [
    "environment.train_tasks=8",
    "environment.eval_tasks=2",
    "environment.test_tasks=0",
    "rollout.max_new_tokens_per_turn=12",
    "rollout.max_total_tokens=192",
    "rollout.max_turns=1",
    "cold_start.cycles=1",
    "cold_start.rollouts_per_cycle=2",
    "train.cycles=2",
    "train.rollouts_per_cycle=2",
    "train.gradient_accumulation_steps=2",
    "eval.tasks=2",
    "eval.baseline_enabled=false",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("smollm2")
    words = [
        *CUT,
        f"models.student.model_id={MODEL}",
        f"models.teacher.model_id={MODEL}",
        f"runtime.store={root / 'store'}",
        "runtime.offline=true",
        "runtime.threads=1",
    ]
    loaded = load(REPO / "recipes" / "smollm2.yaml", words)
    recipe, runtime = locate_models(loaded.recipe, loaded.runtime)

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=runtime, name=name, **parents).run()

    return run_graph(recipe, call), Store(runtime.store), recipe


def test_two_cycles_move_the_adapter_and_nothing_else(finished):
    run, store, _ = finished
    first, last = run.parts["student_0000"], run.parts["student_0001"]
    assert store.record(first).metrics["optimizer_steps"] == 1
    assert store.record(last).metrics["grad_norm"] > 0
    canaries = json.loads((store.path(first) / "canaries.json").read_text())
    assert canaries["divergence_from_itself"] < 1e-3
    assert abs(canaries["loss"] - canaries["loss_with_another_teacher"]) > 1e-3
    assert first.digest != last.digest


def test_the_report_of_a_real_model_is_written(finished):
    run, store, _ = finished
    page = (store.path(run.report) / "report.html").read_text()
    assert "after OPD" in page


def test_a_model_is_known_by_its_bytes(finished):
    _, _, recipe = finished
    assert recipe.models.student.model_id.startswith("sha256:")
    assert recipe.models.student.model_id == recipe.models.teacher.model_id
