"""A small cut of recipes/smollm2.yaml on the real weights: two cycles, to a report."""

import json
import os
from pathlib import Path

import pytest
import torch

from core.artifacts.store import Store
from core.models.hf import PHYSICAL_ROWS, HFBackend
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


def test_smollm2_decodes_as_transformers_does():
    """Greedy tokens may part only where the two best logits lie within 1e-4 of each other."""
    backend = HFBackend(MODEL)
    prompt = backend.tokenizer.encode(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    theirs = backend._model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=24,
        do_sample=False,
        pad_token_id=0,
    )
    logits_BTV = backend._model(input_ids=theirs, use_cache=False).logits
    whole_TV = logits_BTV[0, :, : backend.vocab_size]
    cache = backend.new_cache(PHYSICAL_ROWS, 64)
    feed = theirs.expand(PHYSICAL_ROWS, -1)
    for position in range(theirs.shape[1] - 1):
        at = torch.full((PHYSICAL_ROWS, 1), position)
        logits_SV = backend.project(backend.step(feed[:, position, None], at, cache)[:, 0])
        assert (logits_SV - whole_TV[position]).abs().max() < 1e-3
        if position >= len(prompt) - 1:
            best = logits_SV[0].topk(2).values
            chosen = logits_SV[0, theirs[0, position + 1]]
            assert best[0] - chosen < 1e-4
    assert "Paris" in backend.tokenizer.decode(theirs[0].tolist())
