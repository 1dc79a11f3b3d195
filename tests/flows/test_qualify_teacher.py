"""A teacher acts itself on held-out tasks, with its hint where it teaches with one."""

import json

import pytest

from core.artifacts.contents import hash_file
from core.artifacts.store import Store
from core.errors import InputError
from core.evaluation.qualification import minima_of
from core.models.adapter_directory import (
    CONFIG,
    CONTENT,
    MANIFEST,
    WEIGHTS,
    AdapterManifest,
    Evidence,
    open_adapter,
)
from core.recipe import teacher_steps
from core.recipe.loading import load
from core.trajectory.io import read_trajectories
from flows.graphs.run import RunRefs, prepare_teacher_and_tasks
from flows.qualify_teacher import note_evidence
from tasks.qualify_teacher import qualify_teacher

TINY = (
    "models.teacher.toy_pretrain_steps=2",
    "models.teacher.toy_pretrain_batch_size=4",
    "environment.train_tasks=8",
    "environment.eval_tasks=3",
    "environment.test_tasks=0",
    "cold_start.demonstrations=8",
)
RECIPE = """\
models:
  backend: hf
  student: {model_id: base}
  teacher: {model_id: base, adapter: {path: ADAPTER}}
environment: {name: calculator}
"""


def qualified(root, *overrides):
    """Return a qualification's directory, without Prefect."""
    loaded = load("recipes/toy.yaml", [f"runtime.store={root / 'store'}", *TINY, *overrides])

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    run = RunRefs()
    prepare_teacher_and_tasks(loaded.recipe, call, run)
    spec = teacher_steps.qualification_spec(loaded.recipe)
    ref = call(qualify_teacher, spec, name="q", teacher=run.teacher, tasks=run.held_out)
    return Store(loaded.runtime.store).path(ref)


@pytest.fixture
def adapter(tmp_path):
    """An adapter directory with a manifest, and a recipe that names it."""
    path = tmp_path / "adapter"
    path.mkdir()
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (path / CONFIG).write_text(json.dumps(config))
    (path / WEIGHTS).write_bytes(b"\x02" + b"\x00" * 7 + b"{}")
    files = {name: hash_file(path / name) for name in CONTENT}
    manifest = AdapterManifest(base_digest="b", tokenizer_digest="t", origin={}, files=files)
    (path / MANIFEST).write_text(manifest.model_dump_json())
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("ADAPTER", str(path)))
    return recipe, path


def test_the_rates_and_the_episodes_are_kept(tmp_path):
    directory = qualified(tmp_path)
    evidence = Evidence.model_validate_json((directory / "qualification.json").read_text())
    episodes = read_trajectories(directory / "trajectories.jsonl")
    assert (evidence.environment, evidence.split, evidence.tasks) == ("calculator", "eval", 3)
    assert evidence.rates["strict_success"].total == len(episodes) == 3
    assert not any(span.segment_key == "privileged" for row in episodes for span in row.spans)


def test_a_teacher_with_hints_acts_with_them(tmp_path):
    directory = qualified(tmp_path, "models.teacher.mode=privileged_context")
    for row in read_trajectories(directory / "trajectories.jsonl"):
        (hint,) = [span for span in row.spans if span.segment_key == "privileged"]
        assert str(row.verification.expected) in hint.text
        assert not any(row.model_mask[hint.start : hint.end])


def test_evidence_is_noted_in_the_manifest_of_the_teachers_adapter(adapter, tmp_path):
    recipe, path = adapter
    before = open_adapter(path)
    text = (qualified(tmp_path) / "qualification.json").read_text()
    evidence = Evidence.model_validate_json(text)
    assert note_evidence(recipe, [], evidence) == path / MANIFEST
    after = open_adapter(path)
    assert after.manifest is not None
    assert after.manifest.evidence == evidence
    assert after.digest == before.digest


def test_minima_are_the_recipes_over_the_usual_ones(adapter):
    demand = ["models.teacher.adapter.require_policy_evaluation=true"]
    own = "models.teacher.adapter.minimum_strict_success_rate=0.5"
    recipe = load(adapter[0], [*demand, own]).recipe
    assert minima_of(recipe)["strict_success"] == 0.5
    assert minima_of(recipe)["parse_valid_tool_call"] == 0.95


def test_evidence_without_an_adapter_to_note_it_in_is_refused(tmp_path):
    evidence = Evidence(
        environment="e", params={}, difficulty="easy", split="eval", tasks=1, rates={}
    )
    with pytest.raises(InputError, match="names no local directory with a manifest"):
        note_evidence("recipes/toy.yaml", [], evidence)
