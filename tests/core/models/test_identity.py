"""Digests follow content; stamps only save time and are never believed about a changed file."""

import hashlib
import json
import os
import shutil
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

from core.artifacts import file_stamps
from core.errors import ModelSourceError
from core.models.identity import model_digest, resolve, resolve_tokenizer


@pytest.fixture
def model(tiny_llama, tmp_path):
    """A copy that has not been touched for an hour, so that its stamps are trusted."""
    path = shutil.copytree(tiny_llama, tmp_path / "model")
    hour_ago = time.time() - 3600
    for file in path.iterdir():
        os.utime(file, (hour_ago, hour_ago))
    return path


@pytest.fixture
def settled(monkeypatch):
    """Believe time stamps at once: ctime cannot be set back."""
    monkeypatch.setattr(file_stamps, "RACY_NS", -3_600_000_000_000)


@pytest.fixture
def hashed(monkeypatch):
    """Names of the files that are really read."""
    names, real = [], hashlib.file_digest
    monkeypatch.setattr(
        file_stamps.hashlib,
        "file_digest",
        lambda stream, kind: names.append(Path(stream.name).name) or real(stream, kind),
    )
    return names


def test_the_digest_is_the_hash_of_the_sorted_file_hashes(model):
    files = sorted(model.iterdir())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    assert model_digest(model) == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_digest_depends_on_content_alone(model, tmp_path):
    elsewhere = shutil.copytree(model, tmp_path / "elsewhere")
    (elsewhere / "README.md").write_text("words")
    assert model_digest(elsewhere) == model_digest(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_every_file_that_matters_changes_the_digest(model, name):
    before = model_digest(model)
    content = (model / name).read_bytes()
    spaced = content + b" " if name.endswith("json") else content[:-1] + b"\x01"
    (model / name).write_bytes(spaced)
    assert model_digest(model) != before


def test_a_stamped_directory_is_not_read_again(model, tmp_path, settled, hashed):
    first = model_digest(model, tmp_path / "stamps")
    assert "model.safetensors" in hashed
    hashed.clear()
    assert model_digest(model, tmp_path / "stamps") == first
    assert hashed == []


def test_stamps_lie_outside_the_model(model, tmp_path):
    before = sorted(model.iterdir())
    model_digest(model, tmp_path / "stamps")
    assert sorted(model.iterdir()) == before
    (stamp,) = (tmp_path / "stamps").iterdir()
    assert json.loads(stamp.read_text())["model.safetensors"]["size"] > 0


def test_a_rewritten_file_of_equal_size_and_time_is_read_again(model, tmp_path, settled):
    """C82: a path that stays the same says nothing about the file."""
    before = model_digest(model, tmp_path / "stamps")
    file = model / "model.safetensors"
    stat = file.stat()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"\x01")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert model_digest(model, tmp_path / "stamps") != before


def test_a_file_changed_just_before_hashing_is_not_stamped_for_good(model, tmp_path, hashed):
    model_digest(model, tmp_path / "stamps")
    hashed.clear()
    model_digest(model, tmp_path / "stamps")
    assert "model.safetensors" in hashed


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_broken_stamps_are_hashed_over(model, tmp_path, text, settled):
    stamps = tmp_path / "stamps"
    right = model_digest(model, stamps)
    (stamp,) = stamps.iterdir()
    stamp.write_text(text)
    assert model_digest(model, stamps) == right


def test_stamps_that_cannot_be_kept_cost_time_only(model, tmp_path, caplog):
    (tmp_path / "stamps").write_text("a file where the directory should be")
    assert model_digest(model, tmp_path / "stamps") == model_digest(model)
    assert "cannot be kept" in caplog.text


def test_a_directory_resolves_to_its_absolute_path(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    found = resolve("model", offline=True)
    assert found.path == model.resolve()
    assert found.digest == model_digest(model)


@pytest.mark.parametrize("name", ["./absent", "/absent/model", "absent", "a/b/c"])
def test_a_path_that_is_not_there_is_refused(name):
    with pytest.raises(ModelSourceError, match="neither a directory nor a Hub id\nMake it first"):
        resolve(name, offline=True)


def test_a_chat_template_in_a_file_of_its_own_is_fetched_from_the_hub(model, monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: None)
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda name, *, allow_patterns, **options: asked.extend(allow_patterns) or str(model),
    )
    resolve("owner/name", revision="ab" * 20)
    files = ["chat_template.jinja", "additional_chat_templates/tool_use.jinja"]
    assert all(any(fnmatch(file, pattern) for pattern in asked) for file in files)


def test_a_tokenizers_digest_knows_no_weights(model, tmp_path):
    path = shutil.copytree(model, tmp_path / "tokenizer")
    (path / "model.safetensors").unlink()
    found = resolve_tokenizer(str(path))
    assert found.digest == resolve_tokenizer(str(model)).digest
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 5]}')
    assert resolve_tokenizer(str(path)).digest != found.digest
    (path / "tokenizer.json").unlink()
    with pytest.raises(ModelSourceError, match="holds no tokenizer"):
        resolve_tokenizer(str(path))


def test_trusted_code_is_part_of_the_digest(model):
    config = json.loads((model / "config.json").read_text())
    plain = model_digest(model)
    (model / "modeling_own.py").write_text("x = 1")
    assert model_digest(model) == plain
    mapped = {**config, "auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}
    (model / "config.json").write_text(json.dumps(mapped))
    first = model_digest(model, trust_remote_code=True)
    (model / "modeling_own.py").write_text("x = 2")
    assert model_digest(model, trust_remote_code=True) != first
    with pytest.raises(ModelSourceError, match="asks to run Python code"):
        model_digest(model)
