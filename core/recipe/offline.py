"""Offline distillation: what its data set depends on, or which one is adopted."""

import re

from core.errors import RecipeError
from core.recipe.dataset_spec import AdoptedDatasetSpec, DatasetSpec
from core.recipe.model_steps import tokenizer_spec
from core.recipe.recipe import Recipe
from core.recipe.sources import split_size
from core.recipe.specs import RolloutSpec
from core.recipe.steps import rollout_spec, score_spec

DIGEST_PREFIX = "sha256:"
"""Starts a ``dataset_path`` that names content; the runtime knows where it lies."""


def is_persisted(recipe: Recipe) -> bool:
    """Return whether a run replays a data set that exists already."""
    offline = recipe.run.mode == "offline_kd"
    return offline and recipe.offline_kd.trajectory_source == "persisted"


def adopted_dataset_spec(recipe: Recipe) -> AdoptedDatasetSpec:
    """Return which data set is adopted, and what it must be.

    Raises:
        RecipeError: It is named by a place; ``flows.runs.sources`` replaces that by a digest.
    """
    named = recipe.offline_kd.dataset_path or ""
    if re.fullmatch(f"{DIGEST_PREFIX}[0-9a-f]{{64}}", named) is None:
        raise RecipeError(
            f"offline_kd.dataset_path = {named}: names no content",
            f"Name a directory, or {DIGEST_PREFIX} and the 64 hex digits of its content digest.",
        )
    return AdoptedDatasetSpec(
        digest=named.removeprefix(DIGEST_PREFIX),
        tokenizer=tokenizer_spec(recipe, recipe.models.student),
        score=score_spec(recipe).model_copy(update={"run_seed": 0}),
    )


def dataset_spec(recipe: Recipe) -> DatasetSpec:
    """Return what the frozen data set depends on, besides its parents.

    Raises:
        RecipeError: Nothing says how many episodes it has.
    """
    own = recipe.offline_kd
    assert own.trajectory_source != "persisted", "a data set that exists is adopted, not collected"
    episodes = own.collection_tasks or split_size(recipe, "train")
    if episodes is None:
        raise RecipeError(
            "offline_kd.collection_tasks: is required where tasks come from files",
            "Say how many episodes the data set has.",
        )
    return DatasetSpec(
        source=own.trajectory_source,
        episodes=episodes,
        order_seed=recipe.run.seed,
        first_task=recipe.train.first_task,
        rollout=_frozen_rollout(recipe, episodes) if own.trajectory_source != "oracle" else None,
        score=score_spec(recipe),
    )


def _frozen_rollout(recipe: Recipe, episodes: int) -> RolloutSpec:
    """Return how the student samples its data set: as in the first cycle, on a seed of its own."""
    first, seed = rollout_spec(recipe, 0), recipe.offline_kd.collection_seed
    changes = {"rollouts": episodes, "task_cursor": 0, "run_seed": seed}
    return first.model_copy(update=changes)
