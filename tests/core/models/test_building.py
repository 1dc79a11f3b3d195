"""A spec becomes the model that it names, where the placement says it lies."""

import os

import pytest
import torch

from core.errors import BackendError, ModelSourceError
from core.models.building import (
    Placement,
    build_model,
    build_tokenizer,
    place,
    use_threads,
)
from core.recipe.runtime import Runtime
from core.recipe.schema.adapters import Lora
from core.recipe.specs import ModelSpec, TokenizerSpec, ToySizeSpec

TOY_TOKENIZER = TokenizerSpec(backend="toy", tokenizer_id=None, revision=None)


def toy_spec():
    return ModelSpec(
        backend="toy",
        toy=ToySizeSpec(
            hidden_size=16,
            num_layers=1,
            num_heads=2,
            intermediate_size=16,
            max_position_embeddings=1024,
        ),
        model_id=None,
        revision=None,
        dtype="float32",
        attn_implementation=None,
        tokenizer=TOY_TOKENIZER,
    )


def hf_spec(model_id, tokenizer_id=None):
    return ModelSpec(
        backend="hf",
        toy=None,
        model_id=model_id,
        revision=None,
        dtype="float32",
        attn_implementation="eager",
        tokenizer=TokenizerSpec(backend="hf", tokenizer_id=tokenizer_id or model_id, revision=None),
    )


def test_a_toy_follows_its_seed():
    first, again, other = (build_model(toy_spec(), Placement(), seed=s) for s in (1, 1, 2))
    for name, parameter in first.trainable().items():
        assert torch.equal(parameter, again.trainable()[name])
    assert any(not torch.equal(p, other.trainable()[n]) for n, p in first.trainable().items())
    assert build_tokenizer(TOY_TOKENIZER, Placement()).digest == first.tokenizer.digest


@pytest.mark.parametrize(
    ("lora", "trained"), [(None, 0), (Lora(r=2), 28), (Lora(enabled=False), 20)]
)
def test_pretrained_weights_are_trained_as_the_adapter_says(tiny_llama, lora, trained):
    model = build_model(hf_spec(str(tiny_llama)), Placement(), seed=3, lora=lora)
    assert len(model.trainable()) == trained


def test_a_digest_is_found_through_the_placement(tiny_llama):
    placement = Placement(paths={"ab" * 32: tiny_llama})
    spec = hf_spec("sha256:" + "ab" * 32)
    model = build_model(spec, placement, seed=0)
    assert model.vocab_size == 264
    assert build_tokenizer(spec.tokenizer, placement).digest == model.tokenizer.digest


def test_a_tokenizer_of_its_own_is_used(tiny_llama, tmp_path, save_tokenizer, tiny_tokenizer):
    save_tokenizer(tmp_path, tiny_tokenizer(swap=("a", "b")))
    (tmp_path / "config.json").write_text("{}")
    own = build_model(hf_spec(str(tiny_llama)), Placement(), seed=0).tokenizer
    swapped = build_model(hf_spec(str(tiny_llama), str(tmp_path)), Placement(), seed=0).tokenizer
    assert (swapped.encode("a"), swapped.encode("b")) == (own.encode("b"), own.encode("a"))


def test_a_runtime_is_placed_on_what_is_there():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert place(Runtime()).device == device
    assert place(Runtime(device="cpu", threads=3)).threads == 3


def test_threads_are_those_of_the_placement_or_of_the_kind():
    before = torch.get_num_threads()
    try:
        use_threads(Placement(threads=2), "toy")
        assert torch.get_num_threads() == 2
        use_threads(Placement(), "toy")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_an_unknown_digest_is_refused():
    with pytest.raises(ModelSourceError, match=r"digest cdcdcdcdcdcdcdcd… is not at hand"):
        build_model(hf_spec("sha256:" + "cd" * 32), Placement(), seed=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_absent_cuda_is_refused():
    with pytest.raises(BackendError, match="torch finds no CUDA device"):
        place(Runtime(device="cuda"))


def test_cuda_is_asked_for_deterministic_kernels(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        assert place(Runtime(device="cuda")).device == "cuda"
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_workspace_that_the_user_chose_is_kept(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    try:
        place(Runtime())
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    finally:
        torch.use_deterministic_algorithms(False)
