import pytest

from core.artifacts.store import Store
from core.errors import InputError
from core.recipe.loading import load
from core.report.view import assemble_view
from flows.graph import run_graph
from flows.sample import sample


@pytest.fixture
def run_directory(recipe_file, overrides):
    loaded = load(recipe_file, overrides)

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    run = run_graph(loaded.recipe, call)
    store = Store(loaded.runtime.store)
    return assemble_view(store, run.parts, run.student, run.report, loaded.recipe, loaded.runtime)


def test_a_student_answers_each_prompt_with_one_transcript(run_directory):
    said = list(sample(run_directory, ["Compute 1 + 2.", "Compute 3 + 4."], temperature=0, seed=0))
    assert len(said) == 2
    assert said[0].startswith("[user] Compute 1 + 2.")
    assert "<|im_start|>" not in said[1]


def test_the_same_seed_says_the_same(run_directory):
    first, second = (
        list(sample(run_directory, ["Compute 1 + 2."], temperature=1, seed=5)) for _ in range(2)
    )
    assert first == second


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no run directory"):
        next(sample(tmp_path, ["hello"], temperature=0, seed=0))


def test_a_run_directory_without_its_recipe_is_refused(run_directory):
    (run_directory / "recipe.yaml").unlink()
    with pytest.raises(InputError, match=r"recipe\.yaml cannot be read: No such file"):
        next(sample(run_directory, ["hello"], temperature=0, seed=0))
