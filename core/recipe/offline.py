"""Offline distillation: what its data set depends on, and which of it a cycle replays."""

from core.errors import RecipeError
from core.recipe.dataset_spec import DatasetSpec
from core.recipe.recipe import Recipe
from core.recipe.sources import split_size
from core.recipe.specs import RolloutSpec
from core.recipe.steps import rollout_spec, score_spec


def dataset_spec(recipe: Recipe) -> DatasetSpec:
    """Return what the frozen data set depends on, besides its parents.

    Raises:
        RecipeError: The source is one that nothing collects; the loader refuses such recipes.
    """
    own = recipe.offline_kd
    if own.trajectory_source == "persisted":
        raise RecipeError(
            "offline_kd.trajectory_source = persisted: data sets are found in the store",
            "Use frozen_student or oracle: an equal data set is made once.",
        )
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
        rollout=_frozen_rollout(recipe, episodes) if own.trajectory_source != "oracle" else None,
        score=score_spec(recipe),
    )


def _frozen_rollout(recipe: Recipe, episodes: int) -> RolloutSpec:
    """Return how the student samples its data set: as in the first cycle, on a seed of its own."""
    first, seed = rollout_spec(recipe, 0), recipe.offline_kd.collection_seed
    changes = {"rollouts": episodes, "task_cursor": 0, "run_seed": seed}
    return first.model_copy(update=changes)
