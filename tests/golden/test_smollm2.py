"""A small cut of recipes/smollm2.yaml on the real weights: two cycles, to a report."""

import json
import os
from pathlib import Path

import pytest
import torch

from core.artifacts.store import Store
from core.models.hf import PHYSICAL_ROWS, HFBackend
from core.recipe.loading import load
from core.recipe.schema.adapters import Lora
from core.recipe.training_specs import OptimizerSpec
from core.runs.recorder import write_run
from core.training.optimizer import NO_MOMENTS, Optimizer
from flows.commands.adapters import export
from flows.graphs.run import run_graph
from flows.runs.sources import locate_models

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

    run, store = run_graph(recipe, call), Store(runtime.store)
    runtime = runtime.model_copy(update={"runs": root / "runs"})
    directory = write_run(store, run.artifacts(), recipe, runtime)
    return run, store, recipe, directory


def test_two_cycles_move_the_adapter_and_nothing_else(finished):
    run, store, _, _ = finished
    first, last = run.parts["student_0000"], run.parts["student_0001"]
    assert store.record(first).metrics["optimizer_steps"] == 1
    assert store.record(last).metrics["grad_norm"] > 0
    canaries = json.loads((store.path(first) / "canaries.json").read_text())
    assert canaries["divergence_from_itself"] < 1e-3
    assert abs(canaries["loss"] - canaries["loss_with_another_teacher"]) > 1e-3
    assert first.digest != last.digest
    rows = (store.path(first) / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["sampler_drift_max"] < 1e-2


def test_the_report_of_a_real_model_is_written(finished):
    run, store, _, _ = finished
    page = (store.path(run.report) / "report.html").read_text()
    assert "after OPD" in page


def test_a_model_is_known_by_its_bytes(finished):
    _, _, recipe, _ = finished
    assert recipe.models.student.model_id.startswith("sha256:")
    assert recipe.models.student.model_id == recipe.models.teacher.model_id


def test_the_adapter_of_a_run_is_exported_with_equal_logits(finished, tmp_path):
    *_, directory = finished
    done = export(directory, tmp_path / "adapter")
    assert done.largest_difference < 1e-3
    assert done.tensors == 420


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_quantised_student_learns_with_eight_bit_moments(kind):
    """Loading it compares 420 gradients with those of its dequantised twin."""
    backend = HFBackend(MODEL, quantization=kind, lora=Lora(r=8, alpha=16), seed=1)
    frozen, before = backend.frozen_digest(), {n: p.clone() for n, p in backend.trainable().items()}
    spec = OptimizerSpec(
        name="adamw8bit", weight_decay=0.0, betas=(0.9, 0.95), eps=1e-8, max_grad_norm=1.0
    )
    optimizer = Optimizer(backend.trainable(), spec, NO_MOMENTS)
    prompt = torch.tensor([backend.tokenizer.encode("The capital of France is Paris.")])
    losses = []
    for _ in range(3):
        hidden_TH = backend.hidden_states(prompt, torch.tensor([prompt.shape[1]]))[0, :-1]
        loss = torch.nn.functional.cross_entropy(backend.project(hidden_TH), prompt[0, 1:])
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step(1e-3)
    assert losses[2] < losses[1] < losses[0]
    assert backend.frozen_digest(recheck=True) == frozen
    assert any(not torch.equal(p, before[name]) for name, p in backend.trainable().items())
    kinds = {t.dtype for t in optimizer.moments().tensors["state1"].values()}
    assert torch.uint8 in kinds
    check = backend.gradient_check()
    assert check is not None
    assert check.cosine > 0.9999


def test_bfloat16_samples_near_what_it_trains_on():
    """Drift between engine steps and one whole pass is rounding: 0.046 and 0.25 nats, measured."""
    backend = HFBackend(MODEL, dtype="bfloat16", lora=Lora(r=8, alpha=16), seed=1)
    dtypes = {name.rpartition(".lora_")[1]: p.dtype for name, p in backend._parameters.items()}
    assert dtypes == {"": torch.bfloat16, ".lora_": torch.float32}
    ids = backend.tokenizer.encode("The capital of France is Paris, and 17 + 25 = 42.")
    ids_1T = torch.tensor([ids])
    with torch.no_grad():
        whole_TV = backend.project(backend.hidden_states(ids_1T, torch.tensor([len(ids)]))[0])
    cache, apart = backend.new_cache(PHYSICAL_ROWS, 64), []
    for position, target in enumerate(ids[1:]):
        at = torch.full((PHYSICAL_ROWS, 1), position)
        step_H = backend.step(ids_1T[:, position, None].expand(PHYSICAL_ROWS, 1), at, cache)[0, 0]
        own, other = (
            float(logits_V.float().log_softmax(-1)[target])
            for logits_V in (backend.project(step_H), whole_TV[position])
        )
        apart.append(abs(own - other))
    print(f"bfloat16 drift: mean {sum(apart) / len(apart):.4f}, max {max(apart):.4f} nats")
    assert sum(apart) / len(apart) < 0.15
    assert max(apart) < 1.0


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
