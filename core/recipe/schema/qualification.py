"""The gate of a run: what a teacher must show by acting itself before it may teach."""

from typing import Literal

from pydantic import Field

from core.recipe.schema.adapters import Rate
from core.recipe.schema.section import Section


class Qualification(Section):
    """Held-out tasks that the teacher solves itself, and the rates below which a run is refused."""

    split: Literal["train", "eval", "test"] = "eval"
    """Which tasks."""
    tasks: int | None = Field(default=None, ge=1)
    """Tasks to solve; null means the rest of the split."""
    task_offset: int = Field(default=0, ge=0)
    """Index in the split of the first task."""
    minimum_strict_success_rate: Rate = None
    """Least share of tasks solved without one unreadable turn, 0 to 1; null is 0.80."""
    minimum_recovery_after_error_rate: Rate = None
    """Least share of tasks solved after a failing tool result, 0 to 1; null is 0.75."""
    minimum_parse_valid_tool_call_rate: Rate = None
    """Least share of tool calls that can be read, 0 to 1; null is 0.95."""
    minimum_tool_execution_success_rate: Rate = None
    """Least share of tool calls that succeed, 0 to 1; null is 0.70."""
