"""A GGUF file becomes a model directory, whole or not at all."""

import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from core.errors import MissingDependencyError, ModelSourceError
from core.models.gguf import import_gguf
from core.models.hf import HFBackend

HIDDEN, LAYERS, HEADS, INNER = 32, 2, 4, 64


@pytest.fixture(scope="module")
def vocabulary(tiny_llama):
    """Texts by id, and merges, of the tiny tokenizer."""
    import json

    content = json.loads((tiny_llama / "tokenizer.json").read_text())["model"]
    texts = sorted(content["vocab"], key=content["vocab"].get)
    return texts, [" ".join(merge) for merge in content["merges"]]


def write_gguf(file: Path, vocabulary, arch="llama", quantised=True) -> Path:
    """A random two-layer model; matrices quantised to 8 bits."""
    texts, merges = vocabulary
    writer = gguf.GGUFWriter(file, arch)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(len(texts))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(texts)
    writer.add_token_types([3 if text.startswith("<|") else 1 for text in texts])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    random = np.random.default_rng(3)
    shapes = {"token_embd": (len(texts), HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}"] = (HIDDEN, HIDDEN)
        shapes[f"blk.{layer}.ffn_gate"] = shapes[f"blk.{layer}.ffn_up"] = (INNER, HIDDEN)
        shapes[f"blk.{layer}.ffn_down"] = (HIDDEN, INNER)
        shapes[f"blk.{layer}.attn_norm"] = shapes[f"blk.{layer}.ffn_norm"] = (HIDDEN,)
    for name, shape in shapes.items():
        values = (random.standard_normal(shape) * 0.2).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        if quantised and values.ndim == 2:
            packed = gguf.quants.quantize(values, kind)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", values + (values.ndim == 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture
def file(tmp_path, vocabulary):
    return write_gguf(tmp_path / "tiny.Q8_0.gguf", vocabulary)


def wheel_of(path, *files):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/__init__.py", "")
        for index, file in enumerate(files):
            archive.write(file, f"package/{index}.gguf")
    return path


def leftovers(directory):
    return [path.name for path in directory.iterdir() if "partial" in path.name]


def test_the_directory_computes_what_the_file_says(file, tmp_path):
    out = import_gguf(file, tmp_path / "models" / "tiny")
    backend = HFBackend(out)
    theirs = AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.float32
    ).eval()
    ids = torch.arange(12)[None]
    with torch.no_grad():
        logits = theirs(ids).logits
        ours = backend.project(backend.hidden_states(ids, torch.tensor([12])))
    assert torch.equal(ours, logits)
    assert backend.tokenizer.encode("<|im_start|>tool 12<|im_end|>")[:2] == [1, 261]
    assert backend.tokenizer.eos_ids == (2,)
    assert leftovers(tmp_path / "models") == []


def test_a_wheel_with_one_file_gives_the_same_bytes(file, tmp_path):
    wheel = wheel_of(tmp_path / "package-1.0-py3-none-any.whl", file)
    one = import_gguf(file, tmp_path / "one")
    two = import_gguf(wheel, tmp_path / "two")
    name = "model.safetensors"
    assert (one / name).read_bytes() == (two / name).read_bytes()


def test_an_empty_directory_is_filled(file, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert (import_gguf(file, out) / "tokenizer.json").is_file()


def test_an_occupied_directory_is_refused(file, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    with pytest.raises(ModelSourceError, match="exists and is not empty"):
        import_gguf(file, tmp_path / "out")
    with pytest.raises(ModelSourceError, match="exists and is not empty"):
        import_gguf(file, file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ModelSourceError, match=r"absent\.gguf does not exist"):
        import_gguf(tmp_path / "absent.gguf", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [3, 4, 40, 5000, -1])
def test_a_truncated_file_is_refused_and_leaves_nothing(file, tmp_path, keep):
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelSourceError, match=r"not a GGUF file|cannot be read as a GGUF model"):
        import_gguf(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("count", [0, 2])
def test_a_wheel_without_exactly_one_file_is_refused(file, tmp_path, count):
    wheel = wheel_of(tmp_path / "p-1.0-py3-none-any.whl", *[file] * count)
    with pytest.raises(ModelSourceError, match=f"contains {count} GGUF files"):
        import_gguf(wheel, tmp_path / "out")


def test_a_broken_wheel_is_refused(tmp_path):
    wheel = tmp_path / "p-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    with pytest.raises(ModelSourceError, match="not a whole wheel"):
        import_gguf(wheel, tmp_path / "out")


def test_another_family_is_refused(tmp_path, vocabulary):
    file = write_gguf(tmp_path / "m.gguf", vocabulary, arch="gptneox")
    with pytest.raises(ModelSourceError, match=r"m\.gguf"):
        import_gguf(file, tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_a_place_that_cannot_be_written_is_refused(file, tmp_path):
    with pytest.raises(ModelSourceError, match="cannot be written"):
        import_gguf(file, file / "out")


def test_a_full_disk_leaves_nothing(file, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("core.models.gguf.os.fsync", full)
    with pytest.raises(ModelSourceError, match="cannot be written: No space left"):
        import_gguf(file, tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_the_missing_package_is_named(file, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(MissingDependencyError, match=r"package gguf.*\n.*opdflow\[train\]"):
        import_gguf(file, tmp_path / "out")
