"""The smallest description of the step that writes a report."""

from typing import Literal

from pydantic import JsonValue

from core.recipe.plugin_specs import Spec


class ReportSpec(Spec):
    """What the report shows."""

    title: str
    """Heading of the page."""
    mode: Literal["sft", "offline_kd", "opd", "online_distillation_with_replay"]
    """Kind of experiment."""
    objective: str
    """What was minimised, on whose states, in words."""
    seed: int
    """Run seed."""
    recipe: dict[str, JsonValue]
    """The whole recipe, as it was resolved."""
    max_trajectories: int
    """Episodes shown token by token."""
    max_tokens_per_trajectory: int
    """Tokens shown of each."""
