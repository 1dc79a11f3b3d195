"""The order of tasks from files, as keys know it."""

from core.recipe.plugin_specs import Spec


class TaskOrderSpec(Spec):
    """In which order training tasks from files are used (``core.prompts.order``)."""

    seed: int | None
    """Seed of each epoch's permutation; null keeps the order of the files."""
