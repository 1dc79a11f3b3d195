"""A decoder is loaded whole, from files alone, or refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.errors import BackendError, ModelSourceError
from core.models.loading import load_decoder, quiet_transformers, resolve_dtype

CPU = torch.device("cpu")


@pytest.fixture
def model(tiny_llama, tmp_path):
    return shutil.copytree(tiny_llama, tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "device", "dtype"),
    [
        ("auto", "cpu", torch.float32),
        ("auto", "cuda", torch.bfloat16),
        ("float32", "cpu", torch.float32),
        ("bfloat16", "cpu", torch.bfloat16),
        ("float16", "cuda", torch.float16),
    ],
)
def test_dtypes(name, device, dtype):
    assert resolve_dtype(name, torch.device(device)) is dtype


@pytest.mark.parametrize("name", ["float16", "int8"])
def test_a_dtype_that_does_not_run_is_refused(name):
    with pytest.raises(BackendError, match=f"dtype .?{name}"):
        resolve_dtype(name, CPU)


def test_a_loaded_decoder_holds_the_files_weights_and_drops_nothing(model):
    loaded = load_decoder(model, dtype=torch.float32)
    stored = load_file(model / "model.safetensors")
    assert not loaded.training
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in stored.items())


def test_loading_leaves_the_global_generator_alone(model):
    before = torch.random.get_rng_state()
    load_decoder(model, dtype=torch.float32)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_messages_of_transformers_are_restored():
    with quiet_transformers() as transformers:
        assert not transformers.utils.logging.is_progress_bar_enabled()
    assert transformers.utils.logging.is_progress_bar_enabled()


def test_missing_tensors_are_refused_instead_of_drawn_at_random(model):
    stored = load_file(model / "model.safetensors")
    del stored["model.layers.1.mlp.up_proj.weight"]
    save_file(stored, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelSourceError, match=r"missing model\.layers\.1\.mlp\.up_proj"):
        load_decoder(model, dtype=torch.float32)


def test_weights_of_another_size_are_refused(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "intermediate_size": 64}))
    with pytest.raises(ModelSourceError, match=r"cannot be loaded|mismatched"):
        load_decoder(model, dtype=torch.float32)


def test_a_config_out_of_range_is_refused(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": "two"}))
    with pytest.raises(ModelSourceError, match="cannot be loaded"):
        load_decoder(model, dtype=torch.float32)
