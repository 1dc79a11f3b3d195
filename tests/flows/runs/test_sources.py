"""Places leave a recipe, content enters it, and an adapter is held against its base."""

import json
import struct

import pytest

from core.artifacts.contents import hash_file
from core.errors import ModelSourceError, QualificationError
from core.models.adapter_directory import CONFIG, CONTENT, MANIFEST, WEIGHTS
from core.models.identity import ResolvedModel
from core.recipe.loading import load_text
from flows.runs import sources
from flows.runs.sources import locate_models

RECIPE = """\
models:
  backend: hf
  student: {model_id: some/base}
  teacher: {model_id: some/base}
environment: {name: calculator}
"""
BASE, TOKENIZER = "b" * 64, "t" * 64


@pytest.fixture(autouse=True)
def _base_is_found(monkeypatch, tmp_path):
    found = ResolvedModel(tmp_path / "base", BASE)
    monkeypatch.setattr(sources, "resolve", lambda *args, **kwargs: found)


@pytest.fixture
def adapter(tmp_path):
    """An adapter directory of one empty tensor file, with a manifest."""
    path = tmp_path / "adapter"
    path.mkdir()
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (path / CONFIG).write_text(json.dumps(config))
    (path / WEIGHTS).write_bytes(struct.pack("<Q", 2) + b"{}")
    files = {name: hash_file(path / name).model_dump() for name in CONTENT}
    manifest = {
        "schema_version": 1,
        "base_digest": BASE,
        "base_revision": None,
        "tokenizer_digest": TOKENIZER,
        "origin": {},
        "files": files,
        "evidence": None,
    }
    (path / MANIFEST).write_text(json.dumps(manifest))
    return path


def located(adapter, *overrides, role="teacher"):
    words = [f"models.{role}.adapter.path={adapter}", *overrides]
    loaded = load_text(RECIPE, words)
    return locate_models(loaded.recipe, loaded.runtime)


def test_an_adapter_enters_by_content(adapter):
    recipe, runtime = located(adapter)
    placed = recipe.models.teacher.adapter
    assert placed is not None
    assert placed.path.startswith("sha256:")
    assert runtime.model_paths[placed.path.removeprefix("sha256:")] == adapter.resolve()
    assert recipe.models.student.model_id == f"sha256:{BASE}"
    assert locate_models(recipe, runtime) == (recipe, runtime)


def test_a_student_may_start_from_an_adapter(adapter):
    recipe, _ = located(
        adapter,
        f"models.student.adapter.base_model_revision={BASE}",
        f"models.student.adapter.tokenizer_fingerprint={TOKENIZER}",
        role="student",
    )
    assert recipe.models.student.adapter is not None
    assert recipe.models.teacher.adapter is None


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("base_model_revision=other", r"adapter\.base_model_revision = other is not the base"),
        ("tokenizer_fingerprint=other", r"adapter\.tokenizer_fingerprint is not that of"),
    ],
)
def test_an_adapter_that_is_not_what_the_recipe_says_is_refused(adapter, override, reason):
    with pytest.raises(ModelSourceError, match=reason):
        located(adapter, f"models.teacher.adapter.{override}")


def test_an_adapter_of_another_base_is_refused(adapter, monkeypatch, tmp_path):
    other = ResolvedModel(tmp_path, "c" * 64)
    monkeypatch.setattr(sources, "resolve", lambda *args, **kwargs: other)
    with pytest.raises(ModelSourceError, match="was trained on a base with digest bbbbbbbb"):
        located(adapter)


def test_a_teacher_without_the_evidence_that_is_demanded_is_refused(adapter):
    with pytest.raises(QualificationError, match="carries no evaluation"):
        located(adapter, "models.teacher.adapter.require_policy_evaluation=true")


@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "additional_chat_templates/tool_use.jinja"]
)
def test_every_chat_template_counts_where_it_frames_the_episodes(tmp_path, name):
    def student(*overrides):
        loaded = load_text(RECIPE, overrides)
        return locate_models(loaded.recipe, loaded.runtime)[0].models.student.model_id

    framed = "rollout.template=tokenizer"
    without = student(framed)
    template = tmp_path / "base" / name
    template.parent.mkdir(parents=True)
    template.write_text("{{ messages }}")
    first = student(framed)
    template.write_text("{{ tools }}")
    assert len({without, first, student(framed)}) == 3
    assert student() == without
