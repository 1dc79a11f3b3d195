"""The steps of a comparison, shared with the run that may follow."""

from core.artifacts.store import Store
from core.evaluation.preflight import judge
from core.recipe.loading import load
from flows.compare_teacher import gather, shortened, walk
from flows.runs.plan import plan_recipe


def compared(recipe_file, words, episodes=4, tasks=3):
    loaded = load(recipe_file, words)
    ran = []

    def call(step, spec, *, name, **parents):
        prepared = step.prepare(spec, runtime=loaded.runtime, name=name, **parents)
        if prepared.found is None:
            ran.append(step.name)
        return prepared.run()

    parts = walk(shortened(loaded.recipe, tasks), call, episodes)
    store = Store(loaded.runtime.store)
    return gather(store, parts, cross_tokenizer=loaded.recipe.loss.cross_tokenizer), ran


def test_what_is_measured_and_what_a_run_finds_again(recipe_file, overrides):
    found, ran = compared(recipe_file, overrides)
    assert ran[-4:] == [
        "compare_teacher", "evaluate_student", "qualify_teacher", "continue_episodes",
    ]  # fmt: skip
    assert found.comparison.tokenizers.same
    assert found.comparison.episodes == found.continued.total == 4
    assert found.student.total == found.teacher.total == found.student_fails.total == 3
    assert judge(found).answer == "another teacher"  # six steps make no teacher
    assert compared(recipe_file, overrides) == (found, [])  # asked again, the store answers
    planned = plan_recipe(recipe_file, overrides)
    cached = {step.step for step in planned.steps if step.status == "hit"}
    assert {"prepare_teacher", "cold_start", "sample_rollouts"} <= cached


def test_a_student_of_another_run_is_the_one_that_is_compared(recipe_file, overrides):
    compared(recipe_file, overrides)
    store = Store(load(recipe_file, overrides).runtime.store)
    (cold,) = (one for one in store.siblings("student") if one.task == "cold_start")
    compared(recipe_file, [*overrides, f"run.start={cold.digest}", "cold_start=null"])
    sampled = [one for one in store.siblings("rollouts") if one.name == "preflight"]
    assert {one.parents["student"].digest for one in sampled} == {cold.digest}


def test_a_teacher_with_hints_is_compared_with_them(recipe_file, overrides):
    found, _ = compared(recipe_file, [*overrides, "models.teacher.mode=privileged_context"])
    assert found.comparison.tokens is not None
    assert found.comparison.tokens.tokens > 0


def test_other_tokens_leave_what_both_solve(recipe_file, overrides):
    words = [
        *overrides, "models.teacher.toy_vocabulary=second", "loss.mode=shared_vocab",
        "loss.cross_tokenizer=true",
    ]  # fmt: skip
    found, _ = compared(recipe_file, words)
    assert not found.comparison.tokenizers.same
    assert 0 < found.comparison.tokenizers.shared < 1
    assert found.comparison.tokens is None
    assert found.continued.total == 0
    assert found.teacher.total == 3


def test_a_comparison_is_of_few_tasks_whatever_the_recipe_evaluates(recipe_file, overrides):
    words = [*overrides, "eval.temperature=1", "eval.samples_per_task=3", "eval.task_offset=4"]
    recipe = shortened(load(recipe_file, words).recipe, 16)
    assert (recipe.eval.tasks, recipe.eval.samples_per_task, recipe.eval.temperature) == (2, 1, 0.0)
