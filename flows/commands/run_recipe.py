"""``opd run``: one recipe in this process, on a Prefect server that is there or is made."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.recipe.loading import load
from core.training.stopping import WORDS
from flows.runs.progress import shown
from flows.server.connection import server
from tasks.caching import Step


def run_recipe(path: Path, overrides: Sequence[str], *, quiet: bool = False) -> dict[str, Any]:
    """Run a recipe and return its summary; bad input is refused before anything starts.

    Args:
        path: A YAML file.
        overrides: ``key=value`` changes to it.
        quiet: Print nothing.

    Raises:
        OpdError: Whatever went wrong, in two lines.
    """
    started = time.perf_counter()
    loaded = load(path, overrides)
    if not quiet:
        for note in loaded.notes:
            print(f"note: {note}")
    with server(meanwhile=prepare), shown(quiet=quiet):
        from flows.opd_cycle import opd_cycle

        summary = opd_cycle(
            recipe=loaded.recipe,
            runtime=loaded.runtime,
            recipe_path=str(path),
            overrides=list(overrides),
        )
    summary["wall_time_s"] = round(time.perf_counter() - started, 2)
    if not quiet:
        print_summary(summary)
    return summary


def prepare() -> None:
    """Do what needs no server while an embedded one starts: import, and read our own sources."""
    from flows import opd_cycle
    from flows.graphs import run, student

    assert opd_cycle.opd_cycle.name == "opd-cycle"
    for one in (*vars(run).values(), *vars(student).values()):
        if isinstance(one, Step):
            one.code()


def budget_words(spent: dict[str, Any]) -> str:
    """Say what was spent of a run's budget, whether or not it was reached."""
    unit = "s" if spent["axis"] == "wall_time" else spent["axis"].replace("_", " ")
    over = f", {spent['overshoot']:,.4g} over" if spent["overshoot"] else ""
    reached = "" if spent["stopped"] else "; the cycles ended before it was reached"
    return f"budget: {spent['actual']:,.12g} of {spent['target']:,.12g} {unit}{over}{reached}"


def print_summary(summary: dict[str, Any]) -> None:
    """Print the success numbers, what was computed, and where the report is."""
    for stage, rate in summary["success"].items():
        print(f"{stage:<24} {rate:7.1%} held-out success")
    if summary["stopped"]:
        print(f"stopped: {WORDS[summary['stopped']]}")
    if summary["budget"]:
        print(budget_words(summary["budget"]))
    print(
        f"{summary['steps']} steps: {summary['computed']} computed, {summary['cached']} cached, "
        f"in {summary['wall_time_s']:.1f} s"
    )
    targets = summary["teacher_targets"]
    if targets["reused_positions"]:
        asked = sum(targets.values())
        print(f"{targets['reused_positions']} of {asked} teacher targets came from the cache")
    memory = summary["memory"]
    if memory["strategy"]:
        print(f"memory: {memory['strategy']} ({memory['reason']})")
    if summary["report"]:
        print(f"report: {summary['view']}/report.html")
