"""Section ``report``: what the report shows. It is a view and changes no number."""

from pydantic import Field

from core.recipe.schema.section import Section


class Report(Section):
    """What the report shows."""

    enabled: bool = True
    """Write a report at the end."""
    max_trajectories: int = Field(default=5, ge=0, le=200)
    """Episodes shown token by token."""
    max_tokens_per_trajectory: int = Field(default=400, ge=0, le=8192)
    """Tokens shown of each, from the start."""
