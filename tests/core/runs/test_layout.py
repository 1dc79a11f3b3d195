import pytest

from core.errors import RecipeError
from core.recipe.loading import load_text
from core.runs.layout import directory_name

TEXT = """\
models:
  student: {model_id: toy-student}
  teacher: {model_id: toy-teacher}
environment: {name: calculator}
"""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run.name=mine", "run.seed=7"), "mine-seed7"),
        (("run.name=mine", "run.seed=8"), "mine-seed8"),
        (("run.name=mine", "run.run_id=exactly.this"), "exactly.this"),
    ],
)
def test_a_directory_is_called_after_the_run_and_its_seed(words, name):
    loaded = load_text(TEXT, words)
    assert directory_name(loaded.recipe, loaded.runtime) == name


@pytest.mark.parametrize(
    ("label", "directory"),
    [
        ("../../etc", "etc-seed1"),
        ("/tmp/x", "tmp-x-seed1"),
        ("..", "run-seed1"),
        ("a b/c: 100%", "a-b-c-100-seed1"),
        ("日本", "run-seed1"),
        ("lr=1e-3_v1.2+x", "lr=1e-3_v1.2+x-seed1"),
    ],
)
def test_no_label_leads_out_of_the_directory_of_runs(label, directory):
    loaded = load_text(TEXT, ["run.seed=1"])
    runtime = loaded.runtime.model_copy(update={"run_name": label})
    assert directory_name(loaded.recipe, runtime) == directory


@pytest.mark.parametrize(
    "run_id", ["../x", "/tmp/x", "..", ".hidden", "a/b", "''", "a b", "x" * 101]
)
def test_an_id_that_is_no_plain_name_is_refused(run_id):
    with pytest.raises(RecipeError, match=r"run\.run_id"):
        load_text(TEXT, [f"run.run_id={run_id}"])
