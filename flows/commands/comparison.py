"""``opd compare-teacher``: the flow in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.recipe.loading import load
from flows.runs.progress import shown
from flows.server.connection import server


def hold(
    path: Path, overrides: Sequence[str], *, episodes: int, tasks: int, quiet: bool
) -> dict[str, Any]:
    """Run the flow ``compare-teacher`` and return what it found.

    Args:
        path: A YAML file.
        overrides: ``key=value`` changes to it.
        episodes: Episodes of the student whose states are looked at.
        tasks: Held-out tasks that both solve.
        quiet: Show no progress.

    Raises:
        OpdError: The recipe is refused, or a step failed.
    """
    load(path, overrides)  # bad input is refused before a server starts
    with server(), shown(quiet=quiet):
        from flows.compare_teacher import compare_teacher

        return compare_teacher(
            recipe_path=str(path), overrides=list(overrides), episodes=episodes, tasks=tasks
        )
