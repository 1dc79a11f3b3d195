"""A small sound recipe, and what becomes of it under overrides."""

from collections.abc import Callable

import pytest

from core.errors import RecipeError
from core.recipe import model_steps, steps
from core.recipe.document import Document
from core.recipe.loading import Loaded, load_text
from core.recipe.overrides import apply_overrides, move_execution_keys
from core.recipe.problems import Problem
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.structure import validate
from core.recipe.syntax import parse_document
from core.recipe.validation import Rule

MINIMAL = """\
models:
  student: {model_id: toy-student}
  teacher: {model_id: toy-teacher}
environment: {name: calculator}
"""


def _document(*overrides: str) -> Document:
    document = parse_document(MINIMAL, "minimal.yaml")
    move_execution_keys(document)
    apply_overrides(document, overrides)
    return document


def _specs(recipe: Recipe) -> dict[str, object]:
    return {
        "splits": steps.split_spec(recipe, "train"),
        "held_out": steps.split_spec(recipe, recipe.eval.split),
        "traces": steps.traces_spec(recipe),
        "teacher": model_steps.teacher_spec(recipe),
        "student": model_steps.student_spec(recipe),
        "cold_start": steps.cold_start_spec(recipe),
        "rollout": steps.rollout_spec(recipe, 1),
        "score": steps.score_spec(recipe),
        "update": steps.update_spec(recipe, 1),
        "evaluation": steps.evaluation_spec(recipe),
    }


def _changed(left: Recipe, right: Recipe) -> set[str]:
    """Return the steps whose spec differs; the report shows the whole recipe and is left out."""
    before, after = _specs(left), _specs(right)
    return {name for name in before if before[name] != after[name]}


@pytest.fixture
def changed() -> Callable[[Recipe, Recipe], set[str]]:
    return _changed


@pytest.fixture(scope="session")
def minimal() -> str:
    return MINIMAL


@pytest.fixture
def document() -> Callable[..., Document]:
    return _document


@pytest.fixture
def accepted() -> Callable[..., Loaded]:
    return lambda *overrides: load_text(MINIMAL, overrides, origin="minimal.yaml")


@pytest.fixture
def refused() -> Callable[..., RecipeError]:
    def load(*overrides: str) -> RecipeError:
        with pytest.raises(RecipeError) as caught:
            load_text(MINIMAL, overrides, origin="minimal.yaml")
        return caught.value

    return load


@pytest.fixture
def judged() -> Callable[..., list[Problem]]:
    """Apply one rule to a recipe that is sound key by key, built or not."""

    def judge(rule: Rule, *overrides: str) -> list[Problem]:
        document = _document(*overrides)
        settings = document.values.pop("runtime", {})
        recipe, of_recipe = validate(Recipe, document.values, document)
        runtime, of_runtime = validate(Runtime, settings, document, ("runtime",))
        assert recipe is not None, of_recipe
        assert runtime is not None, of_runtime
        return list(rule(recipe, runtime))

    return judge
