"""What a manifest says of a run's models, before anything was computed."""

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load_text
from core.runs.facts import model_facts, role_facts
from core.runs.parts import Parts

RECIPE = """\
models:
  backend: hf
  runtime: shared_backbone
  student: {model_id: base}
  teacher: {model_id: base, adapter: {path: t}}
environment: {name: calculator}
"""
ADAPTER = {"path": "a", "base_model_revision": "b", "tokenizer_fingerprint": "c"}
REFERENCE = (
    "models.reference.model_id=base",
    *(f"models.reference.adapter.{key}={value}" for key, value in ADAPTER.items()),
)


@pytest.fixture
def said(tmp_path):
    """Return f(overrides): facts of models and of roles."""

    def of(*overrides):
        loaded = load_text(RECIPE, overrides)
        parts = Parts(Store(tmp_path), {})
        return model_facts(loaded.recipe, loaded.runtime, parts, []), role_facts(loaded.recipe)

    return of


def test_a_reference_is_named_with_its_adapter(said):
    models, roles = said(*REFERENCE)
    found = models["reference"]["adapter"]
    assert {key: found[key] for key in ADAPTER} == ADAPTER
    assert models["reference"]["precision"] == models["student"]["precision"] == "float32"
    assert "never trained on" in roles["reference_policy"]


def test_a_run_without_a_reference_says_so(said):
    models, roles = said()
    assert "reference" not in models
    assert roles["reference_policy"] is None
    assert said(*REFERENCE, "run.mode=sft")[1]["reference_policy"] is None
