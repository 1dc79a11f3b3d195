"""A cycle at the sizes of Qwen3-0.6B and 1.7B on a CUDA device, beside transformers and TRL.

Figures are printed as one JSON line each (``pytest -s -m gpu tests/gpu``). The first test runs the
same code at a toy size on any machine, so that it is not first tried where time is dear.
"""

import json
import time

import pytest
import torch

SHARED = {
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "bos_token_id": 0,
}
QWEN3 = {
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072, **SHARED},
    "1.7b": {"hidden_size": 2048, "intermediate_size": 6144, **SHARED},
}
"""Sizes of Qwen3-0.6B and Qwen3-1.7B, from their configurations."""
VOCABULARY = 151_936
TOY = {
    **SHARED,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
SLOTS = (1, 16, 64)
NEW_TOKENS = 64
needs_cuda = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none"
    ),
]


def prompts_of(pair, count):
    """Return the ids of the first prompts, of equal length from the left."""
    episodes = pair.roll_out(1)[:1]
    first = episodes[0].target_positions()[0]
    return torch.tensor([episodes[0].token_ids[:first]] * count, device=pair.student.device)


def generate(pair, count):
    """Return tokens per second of transformers' own generation on the same student."""
    ids_BT = prompts_of(pair, count)
    options = {"do_sample": True, "max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}
    begun = time.perf_counter()
    found = pair.student._model.generate(
        ids_BT, attention_mask=torch.ones_like(ids_BT), pad_token_id=2, **options
    )
    if ids_BT.is_cuda:
        torch.cuda.synchronize()
    return (found.shape[1] - ids_BT.shape[1]) * count / (time.perf_counter() - begun)


def cycle(pair, slots):
    """Run every phase and return the figures."""
    episodes = [pair.roll_out(count) for count in slots][-1]
    row = pair.learn(episodes)
    keep = ("loss", "grad_norm", "sampler_drift_mean", "sampler_drift_max")
    pair.figures |= {name: row[name] for name in keep}
    return pair.figures


def test_the_measurement_runs_at_a_toy_size(shaped, pair, tmp_path):
    path = shaped(tmp_path / "toy", TOY, 300)
    both = pair(path, path, episodes=2, device="cpu", quantization="none", dtype="float32")
    figures = cycle(both, (1, 2))
    assert figures["grad_norm"] > 0
    assert figures["sampler_drift_max"] < 1e-3
    assert generate(both, 2) > 0


@pytest.fixture(scope="module", params=["0.6b", "1.7b"])
def real(request, shaped, pair, tmp_path_factory):
    root = tmp_path_factory.mktemp("qwen")
    student = shaped(root / "student", QWEN3[request.param], VOCABULARY)
    teacher = shaped(root / "teacher", QWEN3["1.7b"], VOCABULARY)
    return pair(
        student, teacher, episodes=64, device="cuda", quantization="nf4", dtype="bfloat16"
    ), request.param


class TestOnCuda:
    pytestmark = needs_cuda

    def test_a_cycle_of_an_nf4_student_and_a_bfloat16_teacher(self, real):
        both, name = real
        figures = cycle(both, SLOTS)
        figures |= {f"generate_{n}_tokens_per_s": round(generate(both, n), 2) for n in SLOTS}
        print(json.dumps({"geometry": name, "gpu": torch.cuda.get_device_name(), **figures}))
        assert figures["rollout_64_tokens_per_s"] > figures["rollout_1_tokens_per_s"]
        assert figures["grad_norm"] > 0

    def test_trl_does_the_same_work(self, real, tmp_path):
        """One on-policy step of TRL's GKD trainer: as many prompts, as many new tokens."""
        gkd = pytest.importorskip("trl.experimental.gkd", reason="TRL is not installed")
        datasets = pytest.importorskip("datasets", reason="TRL's trainer needs datasets")
        from transformers import AutoModelForCausalLM, AutoTokenizer

        both, name = real
        models = both.recipe.models
        tokenizer = AutoTokenizer.from_pretrained(models.student.model_id)
        tokenizer.chat_template = (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        )
        loaded = [
            AutoModelForCausalLM.from_pretrained(one.model_id, dtype=torch.bfloat16).cuda()
            for one in (models.student, models.teacher)
        ]
        rows = [
            {
                "messages": [
                    {"role": "user", "content": task.prompt},
                    {"role": "assistant", "content": "x"},
                ]
            }
            for task in both.tasks
        ]
        settings = gkd.GKDConfig(
            output_dir=str(tmp_path),
            lmbda=1.0,
            beta=1.0,
            max_new_tokens=NEW_TOKENS,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=len(rows) // 8,
            max_steps=1,
            bf16=True,
            report_to="none",
            save_strategy="no",
        )
        trainer = gkd.GKDTrainer(
            model=loaded[0],
            teacher_model=loaded[1],
            args=settings,
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=tokenizer,
        )
        torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        trainer.train()
        figures = {
            "geometry": name,
            "trl_step_s": round(time.perf_counter() - begun, 3),
            "trl_peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 3),
        }
        print(json.dumps(figures))
        assert figures["trl_step_s"] > 0
