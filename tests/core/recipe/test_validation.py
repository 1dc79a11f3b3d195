import pytest

from core.errors import RecipeError
from core.recipe.runtime import Runtime
from core.recipe.validation import RULES, check, combinations
from flows.opd_cycle import opd_cycle
from flows.runs.plan import plan


def test_sound_recipe_has_no_problem(accepted):
    loaded = accepted()
    assert combinations(loaded.recipe, loaded.runtime) == []


def test_each_rule_is_listed_once_and_explained():
    assert len(set(RULES)) == len(RULES) == 47
    assert all(rule.__doc__ for rule in RULES)


def test_broken_rules_are_reported_together(refused):
    error = refused("rollout.max_total_tokens=32", "eval.tasks=99", "train.rollouts_per_cycle=9")
    for key in ("rollout.max_total_tokens", "eval.tasks", "train.rollouts_per_cycle"):
        assert f"{key} = " in error.message
    assert error.hint == "Correct these 3 keys and run the command again."


REFUSED = [
    ("run", {"mode": "offline_kd"}, "run.mode"),
    ("train", {"rollouts_per_cycle": 9}, "train.rollouts_per_cycle"),
    ("train", {"cycles": -1}, "train.cycles"),
    ("models.student", {"quantization": "nf4"}, "models.student.quantization"),
    ("eval", {"tasks": 99}, "eval.tasks"),
]
"""Section, what is changed in it by code, and the key that is refused."""


@pytest.fixture
def changed_in_code(accepted):
    """An accepted recipe with one section replaced, unseen by the loader."""

    def change(path, update):
        names = path.split(".")
        sections = [accepted().recipe]
        for name in names:
            sections.append(getattr(sections[-1], name))
        new = sections.pop().model_copy(update=update)
        for name, section in zip(reversed(names), reversed(sections), strict=True):
            new = section.model_copy(update={name: new})
        return new

    return change


@pytest.mark.parametrize(("path", "update", "key"), REFUSED)
def test_recipe_put_together_in_code_is_refused_like_a_file(changed_in_code, path, update, key):
    recipe = changed_in_code(path, update)
    for run in (check, plan, opd_cycle.fn):
        with pytest.raises(RecipeError) as caught:
            run(recipe, Runtime())
        assert f"recipe: {key} = " in caught.value.message


def test_setting_given_in_code_is_judged_with_the_recipe(accepted):
    loaded = accepted("loss.mode=exact_full_vocab")
    half = loaded.runtime.inherited.model_copy(update={"cache_dtype": "float16"})
    with pytest.raises(RecipeError, match=r"runtime\.inherited\.cache_dtype = \"float16\""):
        check(loaded.recipe, loaded.runtime.model_copy(update={"inherited": half}))


def test_whatever_the_loader_accepts_passes_the_check(accepted):
    for overrides in ((), ("models.backend=hf",), ("loss.mode=exact_full_vocab",)):
        loaded = accepted(*overrides, "run.tags=[a]")
        check(loaded.recipe, loaded.runtime)
