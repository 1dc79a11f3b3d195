"""An adapter starts as nothing, from a stream of its own, and is all that is trained."""

import pytest
import torch

from core.errors import BackendError
from core.models.adapters import attach_lora, plain_name
from core.models.loading import load_decoder
from core.recipe.schema.adapters import Lora

IDS_1T = torch.arange(10)[None]


def adapted(path, seed=5, dtype=torch.float32, **lora):
    model = load_decoder(path, dtype=dtype)
    attach_lora(model, Lora(**{"r": 4, "alpha": 8, **lora}), seed)
    return model


def adapter_of(model):
    return {plain_name(n): p for n, p in model.named_parameters() if p.requires_grad}


def test_names_lose_the_scaffolding():
    assert plain_name("m.q_proj.base_layer.weight") == "m.q_proj.weight"
    assert plain_name("m.q_proj.lora_A.default.weight") == "m.q_proj.lora_A.weight"


def test_a_fresh_adapter_changes_nothing(tiny_model):
    plain = load_decoder(tiny_model, dtype=torch.float32)(IDS_1T).logits
    assert torch.equal(adapted(tiny_model)(IDS_1T).logits, plain)


def test_only_the_adapter_is_trained(tiny_llama):
    own = adapter_of(adapted(tiny_llama))
    assert len(own) == 2 * 7 * 2
    assert sum(p.numel() for p in own.values()) == 2 * 4 * (
        2 * (32 + 32) + 2 * (32 + 16) + 3 * (32 + 48)
    )
    assert all(".lora_" in name for name in own)


def test_targets_are_those_named(tiny_llama):
    own = adapter_of(adapted(tiny_llama, target_modules=("q_proj", "down_proj")))
    assert {name.split(".")[-3] for name in own} == {"q_proj", "down_proj"}


def test_biases_are_trained_as_the_recipe_says(tmp_path, save_tiny_model):
    path = save_tiny_model(tmp_path, "qwen2")
    biased = adapter_of(adapted(path, bias="lora_only", target_modules=("q_proj",)))
    assert sum(name.endswith("q_proj.bias") for name in biased) == 2
    assert sum(name.endswith("bias") for name in biased) == 2
    every = adapter_of(adapted(path, bias="all", target_modules=("q_proj",)))
    assert sum(name.endswith("bias") for name in every) == 6


def test_the_start_is_uniform_and_depends_on_the_seed_alone(tiny_llama):
    before = torch.random.get_rng_state()
    first, again, other = (adapter_of(adapted(tiny_llama, seed)) for seed in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), before)
    a = "model.layers.0.self_attn.q_proj.lora_A.weight"
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first[a], other[a])
    assert first[a].abs().max() <= 32**-0.5
    assert first[a].abs().max() > 0.9 * 32**-0.5
    assert all(not p.any() for name, p in first.items() if ".lora_B." in name)


def test_a_matrix_starts_the_same_whatever_else_is_adapted(tiny_llama):
    alone = adapter_of(adapted(tiny_llama, target_modules=("down_proj",)))
    among = adapter_of(adapted(tiny_llama))
    assert all(torch.equal(alone[name], among[name]) for name in alone)


def test_adapters_of_a_bfloat16_base_are_float32(tiny_llama):
    model = adapted(tiny_llama, dtype=torch.bfloat16)
    assert {p.dtype for p in adapter_of(model).values()} == {torch.float32}
    assert model(IDS_1T).logits.dtype is torch.bfloat16


def test_the_update_is_scaled_by_alpha_over_r(tiny_llama):
    model = adapted(tiny_llama, alpha=12, target_modules=("q_proj",))
    layer = model.model.layers[0].self_attn.q_proj
    x_1H = torch.linspace(-1, 1, 32)[None]
    with torch.no_grad():
        layer.lora_B.default.weight.fill_(0.5)
        a_r = layer.lora_A.default.weight @ x_1H[0]
        expected = layer.base_layer(x_1H)[0] + (12 / 4) * 0.5 * a_r.sum()
        torch.testing.assert_close(layer(x_1H)[0], expected)


def test_every_adapter_matrix_gets_a_gradient(tiny_llama):
    model = adapted(tiny_llama)
    with torch.no_grad():
        for name, parameter in adapter_of(model).items():
            if ".lora_B." in name:
                parameter.fill_(0.01)
    model(IDS_1T).logits.logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in adapter_of(model).values())
    frozen = [p for p in model.parameters() if not p.requires_grad]
    assert all(p.grad is None for p in frozen)


def test_targets_that_are_not_there_are_refused(tiny_llama):
    with pytest.raises(BackendError, match=r"target_modules does not fit"):
        adapted(tiny_llama, target_modules=("c_attn",))
