"""``opd qualify-teacher``: the flow in this process, and its verdict for a person."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.recipe.loading import load
from flows.runs.progress import shown
from flows.server.connection import server


def judge(
    path: Path, overrides: Sequence[str], *, quiet: bool, write_evidence: bool
) -> dict[str, Any]:
    """Run the flow ``qualify-teacher`` and return what it found.

    Args:
        path: A YAML file.
        overrides: ``key=value`` changes to it.
        quiet: Show no progress.
        write_evidence: Note the rates in the manifest of the teacher's adapter.

    Raises:
        OpdError: The recipe is refused, a step failed, or there is no manifest to write into.
    """
    load(path, overrides)  # bad input is refused before a server starts
    with server(), shown(quiet=quiet):
        from flows.qualify_teacher import note_evidence, qualify_teacher

        verdict = qualify_teacher(recipe_path=str(path), overrides=list(overrides))
        if write_evidence:
            from core.models.adapter_directory import Evidence

            evidence = Evidence.model_validate(verdict["evidence"])
            verdict["written"] = str(note_evidence(path, list(overrides), evidence))
    return verdict


def verdict_lines(verdict: dict[str, Any]) -> Iterator[str]:
    """Yield a line per rate: estimate, counts, interval, minimum."""
    evidence = verdict["evidence"]
    yield (
        f"{evidence['tasks']} {evidence['difficulty']} tasks of {evidence['environment']}, "
        f"split {evidence['split']}"
    )
    for name, rate in evidence["rates"].items():
        minimum = verdict["minima"].get(name)
        wanted = f", at least {minimum:.2f} wanted" if minimum is not None else ""
        if rate["estimate"] is None:
            yield f"{name:<24} nothing to count{wanted}"
            continue
        yield (
            f"{name:<24} {rate['estimate']:7.1%}  ({rate['successes']} of {rate['total']}, 95 % "
            f"interval {rate['lower']:.1%} to {rate['upper']:.1%}{wanted})"
        )
    if "written" in verdict:
        yield f"noted in {verdict['written']}"
