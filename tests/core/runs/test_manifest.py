import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import InputError, StoreSchemaError
from core.runs.manifest import Manifest, dump_manifest, load_manifest

KEYS_OF_THE_SEEDS = {
    "created_at",
    "deterministic",
    "environment",
    "git_commit",
    "gpu",
    "measurement_status",
    "memory",
    "mode",
    "models",
    "objective",
    "os",
    "os_release",
    "packages",
    "platform",
    "policy_version",
    "python_version",
    "run_id",
    "run_name",
    "seed",
}
"""000, "What the manifest records"; ``miniverl_version`` is ``opdflow_version`` here."""


def test_every_key_that_the_seeds_list_is_there(tiny):
    plain = json.loads((tiny.directory / "manifest.json").read_text())
    assert set(plain) >= KEYS_OF_THE_SEEDS | {"opdflow_version", "status", "config", "roles"}
    assert set(plain["objective"]) >= {
        "loss_mode",
        "divergence",
        "temperature",
        "scale_by_temperature_squared",
        "top_k",
        "jsd_beta",
        "sampled_token_nll_weight",
        "selector",
        "selection_ratio",
    }
    models = plain["models"]
    assert set(models) >= {"backend", "device", "tokenizer_fingerprint", "tokenizer_vocab_size"}
    for role in ("student", "teacher"):
        assert set(models[role]) >= {
            "model_id",
            "revision",
            "tokenizer_revision",
            "quantization",
            "precision",
            "capabilities",
        }
    assert set(plain["environment"]) >= {"name", "params", "difficulty", "split_seed"}
    assert plain["environment"]["split_sizes"] == {"train": 12, "eval": 6, "test": 0}
    assert set(plain["memory"]) >= {
        "strategy",
        "reason",
        "projection_chunk_size",
        "oom_retries_used",
        "chunk_size_history",
    }
    assert set(plain["measurement_status"]) == {
        "cpu_metrics",
        "cuda_metrics",
        "simulated_results",
    }


def test_numbers_are_those_of_the_run(tiny):
    manifest = load_manifest(tiny.directory)
    assert (manifest.models["device"], manifest.models["tokenizer_vocab_size"]) == (
        "cpu",
        335,
    )
    assert manifest.policy_version == manifest.counters["parameter_version"]
    assert manifest.objective["name"] == "on_policy_distillation"
    assert manifest.is_on_policy
    assert set(manifest.artifacts) == set(tiny.run.parts)
    assert manifest.student == tiny.run.student


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_changed_byte_of_a_manifest_is_noticed(copy, data):
    path = copy / "manifest.json"
    original = path.read_bytes()
    place = data.draw(st.integers(0, len(original) - 1))
    bits = data.draw(st.integers(1, 255))
    changed = bytearray(original)
    changed[place] ^= bits
    path.write_bytes(bytes(changed))
    with pytest.raises((InputError, StoreSchemaError)):
        load_manifest(copy)
    path.write_bytes(original)


def test_a_manifest_returns_as_it_was(tiny):
    manifest = load_manifest(tiny.directory)
    assert dump_manifest(manifest) == (tiny.directory / "manifest.json").read_bytes()
    assert Manifest.model_validate(manifest.model_dump()) == manifest


def test_a_newer_manifest_is_refused_by_name(copy):
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99', 1))
    with pytest.raises(StoreSchemaError, match="schema version 99 is newer"):
        load_manifest(copy)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"status": "completed"}', "[" * 100_000])
def test_what_is_no_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match="is no run directory"):
        load_manifest(tmp_path)
