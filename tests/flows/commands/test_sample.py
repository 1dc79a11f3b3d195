import shutil

import pytest

from core.artifacts.store import Store
from core.errors import InputError
from core.recipe.loading import load
from core.runs.recorder import write_run
from flows.commands.sample import sample
from flows.graphs.run import run_graph


def finished(loaded):
    """Run a recipe's steps without Prefect; returns its directory."""

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    run = run_graph(loaded.recipe, call)
    store = Store(loaded.runtime.store)
    return write_run(store, run.artifacts(), loaded.recipe, loaded.runtime)


@pytest.fixture
def run_directory(recipe_file, overrides):
    return finished(load(recipe_file, overrides))


def test_a_student_answers_each_prompt_with_one_transcript(run_directory):
    said = list(sample(run_directory, ["Compute 1 + 2.", "Compute 3 + 4."], temperature=0, seed=0))
    assert len(said) == 2
    assert said[0].startswith("[user] Compute 1 + 2.")
    assert "<|im_start|>" not in said[1]


@pytest.mark.parametrize("world", ["jsonnav", "sqlite", "tool_policy"])
def test_a_world_with_a_state_lends_that_of_its_first_test_task(tmp_path, world):
    tiny = (
        *("models.teacher.toy_pretrain_steps=1", "models.teacher.toy_pretrain_batch_size=2"),
        *("environment.train_tasks=4", "environment.eval_tasks=2", "environment.test_tasks=2"),
        *("cold_start=null", "train.cycles=0", "train.warmup_steps=0", "eval.enabled=false"),
        *("report.enabled=false", "eval.baseline_enabled=false"),
        *(f"runtime.store={tmp_path / 'store'}", f"runtime.runs={tmp_path / 'runs'}"),
    )
    directory = finished(load(f"recipes/worlds/{world}.yaml", tiny))
    (said,) = sample(directory, ["Look around."], temperature=0, seed=0)
    assert said.startswith("[user] Look around.")
    assert "(environment_error)" not in said


def test_the_same_seed_says_the_same(run_directory):
    first, second = (
        list(sample(run_directory, ["Compute 1 + 2."], temperature=1, seed=5)) for _ in range(2)
    )
    assert first == second


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no run directory"):
        next(sample(tmp_path, ["hello"], temperature=0, seed=0))


def test_a_student_is_sampled_from_the_copied_directory_alone(run_directory, tmp_path):
    here = list(sample(run_directory, ["Compute 1 + 2."], temperature=1, seed=5))
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(run_directory, copy)
    (copy / "local.json").unlink()
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(run_directory)
    assert list(sample(copy, ["Compute 1 + 2."], temperature=1, seed=5)) == here


@pytest.mark.parametrize("name", ["trainable.safetensors", "state.json", "model.json"])
def test_an_altered_checkpoint_is_refused_before_a_model_is_touched(run_directory, name):
    path = run_directory / "checkpoints" / "final" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # it is a hard link into the store
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"{name} is altered: nothing was loaded"):
        next(sample(run_directory, ["hello"], temperature=0, seed=0))


def test_a_run_directory_without_its_recipe_is_refused(run_directory):
    for name in ("local.json", "config.resolved.yaml"):
        (run_directory / name).unlink()
    with pytest.raises(InputError, match=r"config\.resolved\.yaml: no such recipe"):
        next(sample(run_directory, ["hello"], temperature=0, seed=0))
