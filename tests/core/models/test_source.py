"""A model directory is refused in two lines before anything heavy is imported."""

import json
import shutil
import subprocess
import sys

import pytest

from core.errors import ModelSourceError
from core.models.source import check_safetensors, inspect_source


@pytest.fixture
def model(tiny_llama, tmp_path):
    return shutil.copytree(tiny_llama, tmp_path / "model")


def edit_config(model, **changes):
    file = model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_whole_directory_is_accepted(model):
    source = inspect_source(model)
    assert source.model_type == "llama"
    assert source.weight_files == ("model.safetensors",)


def test_shards_are_found_through_their_index(model):
    (model / "model.safetensors").rename(model / "part-2.safetensors")
    shutil.copy(model / "part-2.safetensors", model / "part-1.safetensors")
    index = {"weight_map": {"b": "part-2.safetensors", "a": "part-1.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert inspect_source(model).weight_files == ("part-1.safetensors", "part-2.safetensors")
    (model / "part-1.safetensors").unlink()
    with pytest.raises(ModelSourceError, match=r"part-1\.safetensors is not a readable"):
        inspect_source(model)


def test_inspection_needs_no_torch(model):
    script = (
        "import sys, pathlib; sys.modules.update(dict.fromkeys(['torch', 'transformers']))\n"
        "from core.models.identity import model_digest\n"
        f"print(len(model_digest(pathlib.Path({str(model)!r}))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 64


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(ModelSourceError, match=r"is not a model directory\n.*import-gguf"):
        inspect_source(tmp_path / "absent")


def test_an_empty_directory_is_refused(tmp_path):
    with pytest.raises(ModelSourceError, match=r"has no config\.json"):
        inspect_source(tmp_path)


def test_weights_that_are_not_there_are_refused(model):
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelSourceError, match=r"has no safetensors weights\nGive a directory"):
        inspect_source(model)


def test_pickled_weights_are_refused_with_the_reason(model):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(ModelSourceError, match=r"no safetensors weights\nIts weights are pickled"):
        inspect_source(model)


def test_a_gguf_file_is_answered_with_the_command_that_converts_it(model):
    (model / "model.safetensors").rename(model / "model.gguf")
    with pytest.raises(ModelSourceError, match="opd import-gguf"):
        inspect_source(model)


def test_a_missing_tokenizer_is_refused(model):
    (model / "tokenizer.json").unlink()
    with pytest.raises(ModelSourceError, match="has weights but no tokenizer"):
        inspect_source(model)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_weights_are_refused(model, keep):
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelSourceError, match=r"truncated|not a readable safetensors file"):
        inspect_source(model)


@pytest.mark.parametrize(
    "content", [b"\xff" * 64, b"\x02" + b"\0" * 7 + b"[]", b"\x04" + b"\0" * 7 + b"null"]
)
def test_what_is_no_safetensors_file_is_refused(tmp_path, content):
    file = tmp_path / "weights.safetensors"
    file.write_bytes(content)
    with pytest.raises(ModelSourceError, match="not a readable safetensors file"):
        check_safetensors(file)


def test_another_architecture_is_named(model):
    edit_config(model, model_type="gpt2", architectures=["GPT2LMHeadModel"])
    with pytest.raises(ModelSourceError, match="architecture GPT2LMHeadModel, which does not run"):
        inspect_source(model)


def test_sliding_windows_are_refused(model):
    edit_config(model, model_type="qwen2", use_sliding_window=True)
    with pytest.raises(ModelSourceError, match="sliding-window attention"):
        inspect_source(model)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_angles_that_depend_on_the_batch_are_refused(model, kind):
    edit_config(model, rope_parameters={"rope_type": kind, "rope_theta": 1e4})
    with pytest.raises(ModelSourceError, match=f"uses {kind} rotary embeddings"):
        inspect_source(model)


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_config_that_is_no_json_object_is_refused(model, text):
    (model / "config.json").write_text(text)
    with pytest.raises(ModelSourceError, match=r"config\.json"):
        inspect_source(model)
