"""The memory plan of SmolLM2-135M against torch's allocator; run with ``-s`` to see the figures."""

import os
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from core.models.hf import HFBackend
from core.models.shape import shape_of
from core.recipe.schema.adapters import Lora
from core.recipe.specs import ModelSpec, TokenizerSpec
from core.training.memory_plan import forward_bytes, saved_bytes

pytestmark = pytest.mark.slow
MODEL = Path(os.environ.get("OPD_SMOLLM2", "models/smollm2-135m-instruct"))
ROWS, TOKENS = 2, 256


def peak_bytes(function):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_smollm2_takes_about_what_is_planned(dtype):
    if not (MODEL / "model.safetensors").is_file():
        pytest.skip(f"SmolLM2 is not at {MODEL}")
    tokenizer = TokenizerSpec(backend="hf", tokenizer_id=str(MODEL), revision=None)
    spec = ModelSpec(
        backend="hf", toy=None, model_id=str(MODEL), revision=None, dtype=dtype,
        attn_implementation="sdpa", tokenizer=tokenizer,
    )  # fmt: skip
    lora = Lora()
    shape = shape_of(spec, MODEL, 0)
    backend = HFBackend(MODEL, dtype=dtype, lora=lora)
    base = {n: p for n, p in backend.model.named_parameters() if ".lora_" not in n}
    assert sum(p.numel() * p.element_size() for p in base.values()) == shape.weight_bytes
    tokens = torch.arange(ROWS * TOKENS).reshape(ROWS, TOKENS) % 1000
    lengths = torch.full((ROWS,), TOKENS)

    @torch.no_grad()
    def forward():
        backend.hidden_states(tokens, lengths)

    def backward():
        backend.hidden_states(tokens, lengths).float().sum().backward()

    forward()
    # A row of an adapter's inner numbers per target; gradients of the adapter come on top.
    rank = lora.r * len(lora.target_modules)
    planned = saved_bytes(shape, ROWS, TOKENS, rank=rank) + shape.adapter_weights(lora) * 4
    ratios = {
        "forward": forward_bytes(shape, ROWS, TOKENS, adapted=True) / peak_bytes(forward),
        "backward": planned / peak_bytes(backward),
    }
    print(
        f"\n{dtype}: predicted over measured {ratios}; weights {shape.weight_bytes / 2**20:.0f} MiB"
    )
    assert all(0.8 <= ratio <= 1.5 for ratio in ratios.values())
