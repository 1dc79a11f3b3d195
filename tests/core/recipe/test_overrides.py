import pytest

from core.errors import RecipeError
from core.recipe.loading import load_text
from core.recipe.overrides import apply_overrides, move_execution_keys
from core.recipe.syntax import parse_document


def test_the_last_of_equal_overrides_wins(accepted):
    assert accepted("run.seed=1", "run.seed=2").recipe.run.seed == 2


def test_override_creates_sections(accepted):
    cold = accepted("cold_start.cycles=3", "cold_start.learning_rate=1e-2").recipe.cold_start
    assert cold is not None
    assert (cold.cycles, cold.learning_rate) == (3, 0.01)


def test_null_removes_an_optional_section(accepted):
    given = ("cold_start.cycles=3", "cold_start.learning_rate=1e-2", "cold_start=null")
    assert accepted(*given).recipe.cold_start is None


def test_value_may_contain_an_equals_sign(accepted):
    assert accepted("run.notes=a=b").runtime.notes == "a=b"


def test_both_names_of_a_setting_override_it(minimal):
    text = minimal + "memory: {oom_retries: 1}\n"
    assert load_text(text).runtime.oom_retries == 1
    assert load_text(text, ["memory.oom_retries=2"]).runtime.oom_retries == 2
    assert load_text(text, ["runtime.oom_retries=4"]).runtime.oom_retries == 4


def test_file_may_not_give_a_setting_under_both_names(minimal):
    text = minimal + "memory: {oom_retries: 1}\nruntime: {oom_retries: 2}\n"
    with pytest.raises(RecipeError, match=r"memory.oom_retries and runtime.oom_retries are one"):
        load_text(text)


def test_empty_sections_of_execution_keys_disappear():
    document = parse_document("memory: {}\ncache:\nrun: {name: x}\n", "r.yaml")
    assert move_execution_keys(document) == ["run.name"]
    assert document.values == {"runtime": {"run_name": "x"}}


def test_execution_keys_among_the_overrides_are_named(document):
    given = ["run.seed=1", "cache.keep_cycles=2", "runtime.slots=3"]
    assert apply_overrides(document(), given) == ["cache.keep_cycles"]


@pytest.mark.parametrize("text", ["train.cycles", "=3", "train..cycles=3", ".a=1", ""])
def test_what_is_no_pair_is_refused(refused, text):
    assert f"override {text!r} is not key=value" in refused(text).message
