"""A run whose recipe asks for a gate has no student before its teacher has passed."""

import json

import pytest

from core.artifacts.codec import read_json
from core.artifacts.contents import hash_file
from core.artifacts.store import Store
from core.errors import QualificationError
from core.models.adapter_directory import (
    CONFIG,
    CONTENT,
    WEIGHTS,
    AdapterManifest,
    Evidence,
    MeasuredRate,
)
from core.recipe.loading import load
from core.recipe.runtime import Runtime
from core.runs.reading import open_run
from core.runs.recorder import write_run
from flows.graphs.gate import gate_of, manifest_evidence
from flows.graphs.run import Gate, num_steps, run_graph
from flows.runs.plan import plan_recipe, print_plan

GATE = "models.teacher.qualification"
RATES = (
    *("strict_success", "recovery_after_error"),
    *("parse_valid_tool_call", "tool_execution_success"),
)
OPEN = tuple(f"{GATE}.minimum_{name}_rate=0" for name in RATES)
ADAPTED = """\
models:
  backend: hf
  student: {model_id: base}
  teacher: {model_id: base, adapter: {path: sha256:d}, qualification: {tasks: 8}}
environment: {name: calculator}
"""


def walk(recipe_file, words):
    """Run a recipe without Prefect; returns its store, the steps that ran, and what it left."""
    loaded = load(recipe_file, words)
    store, ran = Store(loaded.runtime.store), []

    def call(step, spec, *, name, **parents):
        ran.append((step.name, name))
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    gate = gate_of(loaded.recipe, loaded.runtime, store)
    return loaded, store, ran, lambda: run_graph(loaded.recipe, call, gate=gate)


def rate(successes, total):
    return MeasuredRate(
        successes=successes, total=total, estimate=successes / total, lower=0.0, upper=1.0
    )


def evidence(**changes) -> Evidence:
    facts = {
        "environment": "calculator", "params": {}, "difficulty": "easy", "split": "eval",
        "tasks": 8, "rates": dict.fromkeys(RATES, rate(8, 8)),
    }  # fmt: skip
    return Evidence.model_validate(facts | changes)


@pytest.fixture
def adapted(tmp_path):
    """A located recipe whose teacher's adapter has a manifest with the given evidence."""

    def make(shown, *words):
        path = tmp_path / "adapter"
        path.mkdir()
        config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
        (path / CONFIG).write_text(json.dumps(config))
        (path / WEIGHTS).write_bytes(b"\x02" + b"\x00" * 7 + b"{}")
        manifest = AdapterManifest(
            base_digest="b",
            tokenizer_digest="t",
            origin={},
            files={name: hash_file(path / name) for name in CONTENT},
            evidence=shown,
        )
        (path / "opdflow_adapter.json").write_text(manifest.model_dump_json())
        (tmp_path / "adapted.yaml").write_text(ADAPTED)
        recipe = load(tmp_path / "adapted.yaml", words).recipe
        return recipe, Runtime(model_paths={"d": path}, store=tmp_path / "store")

    return make


def test_an_unqualified_teacher_ends_the_run_before_there_is_a_student(recipe_file, overrides):
    _, store, ran, run = walk(recipe_file, [*overrides, f"{GATE}.tasks=4"])
    with pytest.raises(QualificationError) as refused:
        run()
    assert ran[-1] == ("qualify_teacher", "standard")
    assert not {"initialize_student", "cold_start", "sample_rollouts"} & {name for name, _ in ran}
    said = refused.value
    assert "\n" not in said.message + said.hint
    assert "strict_success is 0.000 (0 of 4, 95 % interval 0.000 to 0.490), below 0.80" in (
        said.message
    )
    assert f"lower {GATE}.minimum_" in said.hint
    (kept,) = store.siblings("qualification")
    assert kept.key in said.message


def test_a_teacher_that_passes_is_shown_in_report_and_run_directory(recipe_file, overrides):
    loaded, store, ran, run = walk(recipe_file, [*overrides, *OPEN, f"{GATE}.tasks=4"])
    left = run()
    assert len(ran) == num_steps(loaded.recipe) == 17
    names = [name for name, _ in ran]
    assert names.index("qualify_teacher") < names.index("initialize_student")
    page = (store.path(left.report) / "report.html").read_text()
    assert "Qualification of the teacher" in page
    directory = write_run(store, left.artifacts(), loaded.recipe, loaded.runtime)
    first = open_run(directory).metrics()[0]
    assert first["phase"] == "qualification"
    assert first["qualification"]["rates"]["strict_success"]["total"] == 4


def test_a_gate_on_a_split_of_its_own_makes_that_split(recipe_file, overrides):
    words = [*overrides, *OPEN, f"{GATE}.split=test", "environment.test_tasks=3"]
    _, store, ran, run = walk(recipe_file, words)
    run()
    assert ("prepare_splits", "calculator-test") in ran
    (kept,) = store.siblings("qualification")
    assert kept.payload["spec"]["split"] == "test"


def test_a_plan_shows_the_gate_and_ends_where_the_run_would(recipe_file, overrides, capsys):
    words = [*overrides, f"{GATE}.tasks=4"]
    planned = plan_recipe(recipe_file, words)
    assert ("qualify_teacher", "standard") in {(one.step, one.name) for one in planned.steps}
    assert planned.refusal is None
    with pytest.raises(QualificationError):
        walk(recipe_file, words)[-1]()
    planned = plan_recipe(recipe_file, words)
    assert planned.steps[-1].step == "qualify_teacher"
    assert planned.steps[-1].status == "hit"
    print_plan(planned)
    assert "the run ends there: the teacher may not teach" in capsys.readouterr().out
    lowered = plan_recipe(recipe_file, [*words, *OPEN])
    assert lowered.refusal is None
    assert {one.status for one in lowered.steps if one.step == "qualify_teacher"} == {"hit"}


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({}, True),
        ({"tasks": 9}, True),
        ({"tasks": 7}, False),
        ({"split": "test"}, False),
        ({"difficulty": "hard"}, False),
        ({"environment": "sqlite"}, False),
        ({"params": {"prompt_style": "compact"}}, False),
    ],
)
def test_a_manifest_answers_for_the_same_measurement_only(adapted, changes, answers):
    recipe, runtime = adapted(evidence(**changes))
    assert (manifest_evidence(recipe, runtime) is not None) == answers


def test_a_teacher_with_hints_is_measured_with_them_whatever_its_manifest_says(adapted):
    recipe, runtime = adapted(evidence(), "models.teacher.mode=privileged_context")
    assert manifest_evidence(recipe, runtime) is None


def test_an_adapter_with_evidence_needs_no_second_measurement(adapted):
    recipe, runtime = adapted(evidence())
    store, ran = Store(runtime.store), []

    def call(step, spec, *, name, **parents):
        ran.append(step.name)
        if step.name != "adopt_qualification":
            return None
        return step.prepare(spec, runtime=runtime, name=name, **parents).run()

    left = run_graph(recipe, call, gate=gate_of(recipe, runtime, store))
    assert "qualify_teacher" not in ran
    kept = read_json(store.path(left.parts["qualification"]) / "qualification.json")
    assert Evidence.model_validate(kept) == evidence()


def test_evidence_that_falls_short_refuses_the_run_as_a_measurement_would(adapted):
    recipe, runtime = adapted(evidence(rates=dict.fromkeys(RATES, rate(1, 8))))
    store, ran = Store(runtime.store), []

    def call(step, spec, *, name, **parents):
        ran.append(step.name)
        if step.name != "adopt_qualification":
            return None
        return step.prepare(spec, runtime=runtime, name=name, **parents).run()

    with pytest.raises(QualificationError, match=r"strict_success is 0\.125 \(1 of 8"):
        run_graph(recipe, call, gate=gate_of(recipe, runtime, store))
    assert ran[-1] == "adopt_qualification"


def test_without_a_gate_nothing_is_asked(recipe_file, overrides):
    loaded, *_ = walk(recipe_file, overrides)
    ran = []
    run_graph(loaded.recipe, lambda step, spec, **_: ran.append(step.name), gate=Gate())
    assert "qualify_teacher" not in ran
