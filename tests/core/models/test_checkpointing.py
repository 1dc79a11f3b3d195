"""Gradient checkpointing moves memory and no bit."""

import pytest
import torch

from core.models.hf import HFBackend
from core.recipe.schema.adapters import Lora

IDS_BT = torch.randint(0, 264, (3, 12), generator=torch.Generator().manual_seed(2))
LENGTHS_B = torch.full((3,), 12)
LORA = Lora(r=4, alpha=8)


def gradient(backend):
    """Return states and gradients of one pass, and how much autograd kept for the latter."""
    kept = []

    def pack(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden_BTH = backend.hidden_states(IDS_BT, LENGTHS_B)
    hidden_BTH.square().sum().backward()
    # An untied head is trained, and no part of these states.
    found = [p.grad for p in backend.trainable().values() if p.grad is not None]
    return hidden_BTH.detach(), found, sum(kept)


def assert_equal_bits(path, **changes):
    plain = gradient(HFBackend(path, seed=3, **changes))
    recomputed = gradient(HFBackend(path, seed=3, gradient_checkpointing=True, **changes))
    assert torch.equal(recomputed[0], plain[0])
    assert all(torch.equal(one, other) for one, other in zip(recomputed[1], plain[1], strict=True))
    assert recomputed[2] < 0.5 * plain[2]


@pytest.mark.parametrize("lora", [LORA, Lora(enabled=False)])
def test_gradients_have_equal_bits_and_fewer_activations_are_kept(tiny_model, lora):
    assert_equal_bits(tiny_model, lora=lora)


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_quantised_student_has_equal_bits_too(tiny_llama, kind):
    pytest.importorskip("bitsandbytes")
    assert_equal_bits(tiny_llama, lora=LORA, quantization=kind)


def test_engine_steps_keep_their_cache_and_modules_their_mode(tiny_llama):
    plain = HFBackend(tiny_llama, lora=LORA)
    backend = HFBackend(tiny_llama, lora=LORA, gradient_checkpointing=True)
    modes = [module.training for module in backend._model.modules()]
    positions = torch.arange(4).expand(16, -1)
    ids = torch.full((16, 4), 9)
    expected = plain.step(ids, positions, plain.new_cache(16, 8))
    cache = backend.new_cache(16, 8)
    assert torch.equal(backend.step(ids, positions, cache), expected)
    assert float(cache.keys[1].abs().sum()) > 0
    gradient(backend)
    assert [module.training for module in backend._model.modules()] == modes
