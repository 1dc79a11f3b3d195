"""SmolLM2 with SmolLM2: slots against ``generate``, a comparison, a gate that refuses."""

import os
from pathlib import Path

import pytest
import torch

from core.artifacts.store import Store
from core.errors import QualificationError
from core.models.hf import HFBackend
from core.recipe.loading import load
from core.rollout.decoder import Decoder
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.shape import EngineShape
from flows.compare_teacher import gather, shortened, walk
from flows.graphs.gate import gate_of
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

NEW, NEAR_TIE = 20, 1e-4
QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "How many days has a week?",
    "What is the opposite of cold?",
)
CUT = [
    "environment.train_tasks=4",
    "environment.eval_tasks=2",
    "environment.test_tasks=0",
    "eval.tasks=2",
    "rollout.max_new_tokens_per_turn=12",
    "rollout.max_total_tokens=192",
    "rollout.max_turns=1",
    "cold_start=null",
    "train.rollouts_per_cycle=2",
    "train.gradient_accumulation_steps=2",
    "models.teacher.qualification.tasks=2",
]


@pytest.fixture(scope="module")
def located(tmp_path_factory):
    words = [
        *CUT,
        f"models.student.model_id={MODEL}",
        f"models.teacher.model_id={MODEL}",
        f"runtime.store={tmp_path_factory.mktemp('pair') / 'store'}",
        "runtime.offline=true",
        "runtime.threads=1",
    ]
    loaded = load(REPO / "recipes" / "smollm2.yaml", words)
    return locate_models(loaded.recipe, loaded.runtime)


@pytest.fixture
def call(located):
    def run(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=located[1], name=name, **parents).run()

    return run


def played(backend: HFBackend, prompts: list[list[int]], shared: int) -> list[list[int]]:
    """Decode all prompts together, greedily."""
    limits = EpisodeLimits(1, NEW, max(map(len, prompts)) + NEW)
    shape = EngineShape.of(backend, limits)
    engine = Decoder(backend, shape, SamplingSpec(0.0), slots=16, stop_texts=(), max_new_tokens=NEW)
    for slot, token_ids in enumerate(prompts):
        engine.admit(slot, token_ids, prefix=shared, budget=NEW, stream=slot)
    written: dict[int, list[int]] = {}
    while turns := engine.advance():
        written |= {turn.slot: list(turn.token_ids) for turn in turns}
    return [written[slot] for slot in range(len(prompts))]


@torch.inference_mode()
def test_sixteen_slots_write_what_generate_writes_in_float32():
    """The two may part only where the two best logits lie within 1e-4 of each other."""
    torch.set_num_threads(1)
    backend = HFBackend(MODEL, dtype="float32")
    encode, model = backend.tokenizer.encode, backend._model
    system = encode("<|im_start|>system\nYou answer in one short sentence.<|im_end|>\n")
    asked = [
        system + encode(f"<|im_start|>user\n{one}<|im_end|>\n<|im_start|>assistant\n")
        for one in QUESTIONS
    ]
    for token_ids, ours in zip(asked, played(backend, asked, len(system)), strict=True):
        whole_1T = model.generate(
            torch.tensor([token_ids]),
            attention_mask=torch.ones((1, len(token_ids)), dtype=torch.int64),
            max_new_tokens=len(ours),
            do_sample=False,
            pad_token_id=0,
        )
        theirs = whole_1T[0, len(token_ids) :].tolist()
        parted = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b][:1]
        for place in parted:
            context_1T = torch.tensor([token_ids + ours[:place]])
            logits_V = model(input_ids=context_1T, use_cache=False).logits[0, -1]
            assert (logits_V[ours[place]] - logits_V[theirs[place]]).abs() < NEAR_TIE


def test_an_untrained_pair_of_one_model_is_compared_and_found_out(located, call):
    """C75: without a hint the student is its own teacher, and the verdict says so."""
    recipe, runtime = located
    teacher = recipe.models.teacher.model_copy(update={"mode": "standard"})
    models = recipe.models.model_copy(update={"teacher": teacher})
    same = recipe.model_copy(update={"models": models})
    found = gather(Store(runtime.store), walk(shortened(same, 2), call, 2), cross_tokenizer=False)
    signs = found.comparison.tokens
    assert signs is not None
    assert found.comparison.tokenizers.same
    assert signs.divergence < 1e-6
    assert signs.overlap > 0.98
    assert signs.sampler_gap is not None
    assert signs.sampler_gap < 1e-3
    assert found.teacher.solved <= found.student.solved


def test_the_raw_model_does_not_pass_the_gate_of_a_run(located, call):
    recipe, runtime = located
    with pytest.raises(QualificationError, match="strict_success is 0"):
        run_graph(recipe, call, gate=gate_of(recipe, runtime, Store(runtime.store)))
