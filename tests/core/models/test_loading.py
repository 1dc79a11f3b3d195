"""A decoder is loaded whole, from files alone, or refused."""

import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.errors import BackendError, ModelSourceError
from core.models.hf import HFBackend
from core.models.loading import load_decoder, quiet_transformers, resolve_dtype
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec

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
def test_dtypes(name, device, dtype, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    assert resolve_dtype(name, torch.device(device)) is dtype


def test_a_device_without_bfloat16_gets_float16_and_refuses_what_it_cannot(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    assert resolve_dtype("auto", torch.device("cuda")) is torch.float16
    with pytest.raises(BackendError, match=r"dtype bfloat16 has no kernels.*\nChoose float32"):
        resolve_dtype("bfloat16", torch.device("cuda"))


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


DEFAULTS = {
    "do_sample": True,
    "temperature": 0.01,
    "top_k": 1,
    "repetition_penalty": 1.9,
    "forced_bos_token_id": 44,
    "forced_eos_token_id": 45,
    "suppress_tokens": [50, 51, 52],
    "max_new_tokens": 1,
    "eos_token_id": 2,
}


@pytest.fixture
def play(tmp_path, save_tiny_model):
    """Return f(generation config): three sampled episodes of a model directory that has it."""
    path = save_tiny_model(tmp_path / "roomy", max_position_embeddings=1024)

    def run(defaults):
        (path / "generation_config.json").write_text(json.dumps(defaults))
        world = make_environment("calculator", prompt_style="compact")
        tasks = make_splits(world, {"train": 3}, seed=7, difficulty="easy")["train"]
        return run_episodes(
            HFBackend(path),
            lambda: make_environment("calculator", prompt_style="compact"),
            tasks,
            EpisodeLimits(max_turns=1, max_new_tokens_per_turn=20, max_total_tokens=900),
            SamplingSpec(temperature=3.0),
            seed=9,
            trajectory_ids=[task.task_id for task in tasks],
            policy_version=0,
            model_digest=None,
            slots=3,
        )

    return run


def test_sampling_defaults_of_a_directory_change_no_rollout(play):
    assert play(DEFAULTS) == play({"eos_token_id": 2})


def test_the_loaded_model_keeps_none_of_the_directorys_defaults(model):
    (model / "generation_config.json").write_text(json.dumps(DEFAULTS))
    loaded = load_decoder(model, dtype=torch.float32)
    assert loaded.generation_config.eos_token_id == 2
    changed = loaded.generation_config.to_diff_dict().keys()
    assert not changed & (DEFAULTS.keys() - {"eos_token_id"})


def test_every_declared_end_of_text_ends_a_turn(play):
    """An id that an episode sampled is declared to end a text: the same noise now stops there."""
    before = play({"eos_token_id": 2})[0]
    sampled = [before.token_ids[position] for position in before.target_positions()]
    assert len(sampled) > 4
    end = sampled[3]
    after = play({"eos_token_id": [2, end]})[0]
    kept = [after.token_ids[position] for position in after.target_positions()]
    assert kept == sampled[: sampled.index(end) + 1]


OWN_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""
WITHOUT_SIZES = """
    def __init__(self, config):
        super().__init__(config)
        config.num_key_value_heads = None
"""


@pytest.fixture
def own_code(model, tmp_path, monkeypatch):
    """A model whose architecture is Python code beside the weights."""
    modules = tmp_path / "modules"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(modules))
    monkeypatch.setattr("sys.path", [*sys.path])
    (model / "modeling_own.py").write_text(OWN_CODE)
    config = json.loads((model / "config.json").read_text())
    names = {"AutoConfig": "OwnConfig", "AutoModelForCausalLM": "OwnForCausalLM"}
    config["auto_map"] = {key: f"modeling_own.{name}" for key, name in names.items()}
    (model / "config.json").write_text(json.dumps({**config, "model_type": "own"}))
    return model


def test_code_that_ships_with_a_model_runs_where_the_recipe_trusts_it(own_code, tiny_llama):
    backend = HFBackend(own_code, trust_remote_code=True)
    assert type(backend._model).__name__ == "OwnForCausalLM"
    ids, lengths = torch.arange(8)[None] + 40, torch.tensor([8])
    assert torch.equal(
        backend.hidden_states(ids, lengths), HFBackend(tiny_llama).hidden_states(ids, lengths)
    )


def test_code_that_ships_with_a_model_is_refused_otherwise(own_code):
    with pytest.raises(ModelSourceError, match=r"auto_map\)\nRead that code; then set"):
        HFBackend(own_code)
    assert "OwnForCausalLM" not in str(sys.modules)


def test_code_that_does_not_tell_the_sizes_is_refused(own_code):
    (own_code / "modeling_own.py").write_text(OWN_CODE + WITHOUT_SIZES)
    with pytest.raises(ModelSourceError, match="its own code gives no num_key_value_heads"):
        HFBackend(own_code, trust_remote_code=True)


def test_a_tokenizers_own_code_is_refused_too(model):
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["auto_map"] = {"AutoTokenizer": ["tokenization_own.Own", None]}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelSourceError, match=r"tokenizer_config\.json asks to run Python code"):
        HFBackend(model)
