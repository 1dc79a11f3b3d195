import json

import pytest

from core.recipe.loading import load
from flows.graphs.run import num_steps, run_graph
from flows.runs.plan import plan_recipe, print_plan
from tasks.caching import StepCall


@pytest.fixture
def built(recipe_file, overrides):
    """A store in which the tiny recipe has run, without Prefect."""
    loaded = load(recipe_file, overrides)

    def call(step, spec, *, name, **parents):
        prepared: StepCall = step.prepare(spec, runtime=loaded.runtime, name=name, **parents)
        return prepared.run()

    run_graph(loaded.recipe, call)
    return recipe_file, overrides


def statuses(planned):
    return {(step.step, step.name): step.status for step in planned.steps}


def test_a_new_store_has_everything_to_compute(recipe_file, overrides):
    planned = plan_recipe(recipe_file, overrides)
    assert planned.count("hit") == 0
    assert planned.steps[0].reasons == ("never computed in this store",)
    assert planned.count("miss") + planned.count("unknown") == len(planned.steps) == 16


def test_what_ran_is_a_hit(built):
    path, overrides = built
    planned = plan_recipe(path, overrides)
    assert planned.count("hit") == num_steps(load(path, overrides).recipe) == 16


def test_editing_the_evaluation_reruns_evaluation_and_report_only(built):
    path, overrides = built
    planned = plan_recipe(path, [*overrides, "eval.tasks=4"])
    missed = {key for key, status in statuses(planned).items() if status != "hit"}
    assert {step for step, _ in missed} == {"evaluate_student", "write_report"}
    reasons = [step.reasons for step in planned.steps if step.status == "miss"]
    assert all("spec.tasks: 6 → 4" in reason for reason in reasons)


def test_another_divergence_keeps_cold_start_teacher_and_traces(built):
    path, overrides = built
    found = statuses(plan_recipe(path, [*overrides, "loss.divergence=forward_kl"]))
    for step in ("prepare_splits", "collect_oracle_traces", "prepare_teacher", "cold_start"):
        assert {status for (name, _), status in found.items() if name == step} == {"hit"}
    assert found["sample_rollouts", "cycle-001"] == "hit"
    assert found["update_student", "cycle-001"] == "miss"
    assert found["sample_rollouts", "cycle-002"] == "unknown"


@pytest.mark.parametrize(
    "change", ["runtime.device=cpu", "run.output_dir=elsewhere", "runtime.slots=4"]
)
def test_where_it_runs_changes_nothing(built, change):
    path, overrides = built
    assert plan_recipe(path, [*overrides, change]).count("hit") == 16


def test_a_physical_size_flags_the_steps_whose_last_bits_it_reaches(built):
    path, overrides = built
    planned = plan_recipe(path, [*overrides, "runtime.trajectory_batch_size=1"])
    flagged = {step.step for step in planned.steps if step.reasons}
    assert planned.count("hit") == 16
    assert flagged == {"prepare_teacher", "cold_start", "score_rollouts", "update_student"}


def test_a_record_tells_the_threads_that_nobody_set(built):
    path, overrides = built
    planned = plan_recipe(path, [*overrides, "runtime.threads=2"])
    reasons = {reason for step in planned.steps for reason in step.reasons}
    assert reasons == {"built in another numeric class: threads 1, here 2"}


def test_a_plan_prints_reasons_and_counts(built, capsys):
    path, overrides = built
    print_plan(plan_recipe(path, [*overrides, "eval.tasks=4"]))
    shown = capsys.readouterr().out
    assert "spec.tasks: 6 → 4" in shown
    assert "12 cached, 3 to compute, 1 that depend on those" in shown


def test_a_plan_is_one_json_document(built):
    path, overrides = built
    document = json.loads(json.dumps(plan_recipe(path, overrides).as_document()))
    assert document["hit"] == len(document["steps"]) == 16


def test_a_plan_without_the_models_says_what_it_cannot_know(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    recipe = tmp_path / "absent.yaml"
    model = f"model_id: nobody/nothing, revision: {'ab' * 20}, dtype: float32"
    recipe.write_text(
        f"models: {{backend: hf, student: {{{model}}}, teacher: {{{model}}}}}\n"
        "environment: {name: calculator}\n"
    )
    planned = plan_recipe(recipe, [f"runtime.store={tmp_path / 'store'}"])
    print_plan(planned)
    assert planned.count("hit") == 0
    assert planned.absent is not None
    assert planned.absent.startswith(f"nobody/nothing@{'ab' * 20} is not on this disk. ")
    assert "not known: which steps that read a model" in capsys.readouterr().out
