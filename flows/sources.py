"""What a recipe takes from outside: pretrained weights, by content, and plug-ins, opened early."""

from pathlib import Path
from typing import TypeVar

from core.environments.plugins import open_environment
from core.models.building import DIGEST_PREFIX
from core.models.identity import resolve
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schema.models import Model
from core.selection.plugins import open_selector
from core.teacher.plugins import find_teacher

M = TypeVar("M", bound=Model)


def open_plugins(recipe: Recipe, runtime: Runtime) -> None:
    """Open every plug-in before anything is computed, so that none fails hours later.

    Raises:
        PluginError: Code is not at hand, is not what was listed, or defines no such plug-in.
    """
    open_environment(recipe.environment, runtime.plugins.environment)
    open_selector(recipe.selection, runtime.plugins.selector)
    if recipe.models.teacher.plugin is not None:
        find_teacher(recipe.models.teacher.plugin, runtime.plugins.teacher)


def locate_models(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, Runtime]:
    """Replace every model's place by the digest of its files, and note the places in the runtime.

    A recipe that is located already, or that uses no pretrained weights, comes back as it is.

    Raises:
        ModelSourceError: A model cannot be found or is not whole.
    """
    if recipe.models.backend == "toy":
        return recipe, runtime
    places = dict(runtime.model_paths)
    student = _located(recipe.models.student, runtime, places)
    teacher = _located(recipe.models.teacher, runtime, places)
    models = recipe.models.model_copy(update={"student": student, "teacher": teacher})
    return (
        recipe.model_copy(update={"models": models}),
        runtime.model_copy(update={"model_paths": places}),
    )


def _located(model: M, runtime: Runtime, places: dict[str, Path]) -> M:
    if model.model_id.startswith(DIGEST_PREFIX):
        return model
    stamps = runtime.store.parent / "model-stamps"
    found = resolve(model.model_id, revision=model.revision, offline=runtime.offline, stamps=stamps)
    places[found.digest] = found.path
    changes = {"model_id": f"{DIGEST_PREFIX}{found.digest}", "revision": None}
    if model.tokenizer_id is not None:
        tokenizer = resolve(
            model.tokenizer_id,
            revision=model.tokenizer_revision,
            offline=runtime.offline,
            stamps=stamps,
        )
        places[tokenizer.digest] = tokenizer.path
        changes |= {
            "tokenizer_id": f"{DIGEST_PREFIX}{tokenizer.digest}",
            "tokenizer_revision": None,
        }
    return model.model_copy(update=changes)
