"""Section ``environment``: the world, and how many of its tasks."""

from typing import Literal

from pydantic import Field, JsonValue

from core.recipe.schema.plugin import Plugin
from core.recipe.schema.section import Section


class EnvironmentSection(Section):
    """A registered world and the sizes of its prompt-disjoint splits."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name in the registry of environments, or in the plug-in."""
    plugin: Plugin | None = None
    """Code that defines an environment of your own; null for a built-in one."""
    params: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the environment, e.g. ``prompt_style: compact`` or ``protocol_version: v2``."""
    train_tasks: int = Field(default=64, ge=1)
    """Tasks that are trained on."""
    eval_tasks: int = Field(default=32, ge=1)
    """Held-out tasks for curves and decisions."""
    test_tasks: int = Field(default=32, ge=0)
    """Held-out tasks for the final figure."""
    split_seed: int = Field(default=7, ge=0)
    """Seed of the tasks; runs that share it see the same tasks."""
    difficulty: Literal["easy", "medium", "hard"] = "easy"
    """How many steps a task needs."""
