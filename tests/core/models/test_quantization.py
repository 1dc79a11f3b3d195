"""Quantised students sample, score and learn under one arithmetic, with the gradients they mean."""

import importlib.util
import subprocess
import sys
import warnings

import pytest
import torch

from core.errors import BackendError, MissingDependencyError
from core.models import hf
from core.models.hf import HFBackend
from core.models.quantization import dequantised, quantised_layers
from core.recipe.schema.adapters import Lora

LORA = Lora(r=4, alpha=8)
KINDS = ("nf4", "int8")
IDS_BT = torch.randint(0, 264, (16, 12), generator=torch.Generator().manual_seed(2))
LENGTHS_B = torch.full((16,), 12)


def student(path, kind, **changes):
    return HFBackend(path, quantization=kind, lora=LORA, seed=3, **changes)


def stirred(backend):
    """Move every adapter matrix away from zero."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in backend.trainable().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return backend


@pytest.mark.parametrize("kind", KINDS)
def test_the_twin_computes_the_same_states(tiny_model, kind):
    backend = stirred(student(tiny_model, kind))
    with torch.no_grad():
        own = backend.hidden_states(IDS_BT, LENGTHS_B)
        with dequantised(backend._model):
            twin = backend.hidden_states(IDS_BT, LENGTHS_B)
    torch.testing.assert_close(own, twin, rtol=1e-4, atol=1e-4)


def test_quantisation_is_near_the_dense_model_and_is_not_it(tiny_llama):
    dense = HFBackend(tiny_llama).hidden_states(IDS_BT, LENGTHS_B)
    for kind, least in (("nf4", 0.8), ("int8", 0.999)):
        other = HFBackend(tiny_llama, quantization=kind).hidden_states(IDS_BT, LENGTHS_B)
        cosine = torch.cosine_similarity(dense.flatten(), other.flatten(), dim=0)
        assert least < float(cosine.detach()) < 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_and_training_share_one_distribution(tiny_llama, kind):
    backend = stirred(student(tiny_llama, kind))
    trained = backend.hidden_states(IDS_BT, LENGTHS_B).detach()
    with torch.no_grad():
        sampled = backend.hidden_states(IDS_BT, LENGTHS_B)
    assert torch.equal(trained, sampled)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_its_company(tiny_llama, kind):
    backend = stirred(student(tiny_llama, kind))
    cache = backend.new_cache(16, 12)
    other = backend.new_cache(16, 12)
    positions_SQ = torch.arange(12).expand(16, -1)
    alone_SQ = IDS_BT.flip(0).clone()
    alone_SQ[5] = IDS_BT[5]
    together = backend.step(IDS_BT, positions_SQ, cache)[5]
    assert torch.equal(backend.step(alone_SQ, positions_SQ, other)[5], together)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_after_a_rollout_are_those_of_the_weights(tiny_llama, kind, dtype):
    backend = stirred(student(tiny_llama, kind, dtype=dtype))
    backend.step(IDS_BT, torch.arange(12).expand(16, -1), backend.new_cache(16, 12))
    found = backend.gradient_check()
    assert found is not None
    assert found.tensors == len(backend.trainable()) == 28
    assert found.cosine > (0.9999 if dtype == "float32" else 0.99)
    assert found.relative_error < (1e-3 if dtype == "float32" else 0.15)


def test_a_check_leaves_adapter_and_frozen_weights_as_they_were(tiny_llama):
    backend = stirred(student(tiny_llama, "nf4"))
    before, frozen = {n: p.clone() for n, p in backend.trainable().items()}, backend.frozen_digest()
    backend.gradient_check()
    assert all(torch.equal(p, before[name]) for name, p in backend.trainable().items())
    assert all(p.grad is None for p in backend.trainable().values())
    assert backend.frozen_digest(recheck=True) == frozen


def test_a_fresh_adapter_is_the_one_that_its_seed_means(tiny_llama):
    dense, quantised = HFBackend(tiny_llama, lora=LORA, seed=3), student(tiny_llama, "nf4")
    assert dense.trainable().keys() == quantised.trainable().keys()
    for name, parameter in dense.trainable().items():
        assert torch.equal(parameter, quantised.trainable()[name])


def test_the_frozen_digest_covers_the_scales(tiny_llama):
    backend = HFBackend(tiny_llama, quantization="nf4")
    before = backend.frozen_digest(recheck=True)
    layer = next(iter(quantised_layers(backend._model).values()))
    layer.weight.quant_state.offset += 0.5
    assert backend.frozen_digest(recheck=True) != before


def test_what_is_not_quantised_becomes_float32_when_asked(tiny_llama):
    prepared = student(tiny_llama, "nf4", dtype="bfloat16")
    plain = student(tiny_llama, "nf4", dtype="bfloat16", prepare_kbit_training=False)
    assert (prepared.dtype, plain.dtype) == (torch.float32, torch.bfloat16)


def test_weights_that_were_packed_for_inference_are_refused(save_tiny_model, tmp_path, monkeypatch):
    """The trap: left alone, an eval forward re-packs NF4 weights, and gradients turn in silence."""
    import bitsandbytes

    if not bitsandbytes.functional.has_avx512bf16():
        pytest.skip("this CPU has no AVX512_BF16, so bitsandbytes never re-packs NF4 weights")
    monkeypatch.setattr(hf, "settle", lambda model, prepare: None)
    path = save_tiny_model(tmp_path, hidden_size=128, intermediate_size=128)
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(BackendError, match="gradients through the quantised layers"),
    ):
        student(path, "nf4")


def test_eight_bit_layers_left_alone_would_sample_from_another_model(tiny_llama, monkeypatch):
    monkeypatch.setattr(hf, "settle", lambda model, prepare: None)
    backend = stirred(student(tiny_llama, "int8"))
    sampled = backend.hidden_states(IDS_BT, LENGTHS_B).detach()
    backend._model.train()
    assert not torch.equal(backend.hidden_states(IDS_BT, LENGTHS_B).detach(), sampled)


def test_quantisation_without_bitsandbytes_is_refused(tiny_llama, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="quantization: nf4 needs bitsandbytes"):
        HFBackend(tiny_llama, quantization="nf4")


def test_bitsandbytes_gets_no_kernels_from_the_hub(tmp_path):
    (tmp_path / "kernels.py").write_text("raise SystemExit('code from the Hub would run')")
    code = (
        "from core.models.bitsandbytes_library import import_bitsandbytes as load; "
        "print(load('a test', 'skip it').__name__); import sys; assert 'kernels' not in sys.modules"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "bitsandbytes"), done.stderr
