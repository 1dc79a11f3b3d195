"""``opd inspect``: the provenance of a run's tokens, and one episode token by token."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.runs.inspection import (
    EpisodeView,
    SpanRow,
    TokenRow,
    episode_ids,
    episode_view,
    provenance_table,
)
from core.runs.reading import open_run, status_of

PIPED = 200
"""Columns of what is not printed to a terminal."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def inspect(directory: Path, episode: str | None, *, episodes: bool) -> dict[str, Any]:
    """Return what there is to see, as one JSON document.

    Args:
        directory: Of a run, or of an export that was unpacked.
        episode: Id of an episode to show token by token.
        episodes: List the episodes instead.

    Raises:
        InputError: It is no run directory, or has no such episode.
    """
    run = open_run(directory)
    if episode is not None:
        return episode_view(run, episode).model_dump(mode="json")
    manifest = run.manifest
    found = {
        "run_id": manifest.run_id,
        "status": status_of(directory, manifest),
        "objective": manifest.objective.get("words"),
        "policy_version": manifest.policy_version,
        "spans": [row.model_dump(mode="json") for row in provenance_table(run)],
    }
    if episodes:
        found["episodes"] = [{"id": name, "solved": solved} for name, solved in episode_ids(run)]
    return found


def print_inspection(found: dict[str, Any], console: Console | None = None) -> None:
    """Print what :func:`inspect` returned."""
    # A pipe has no width: what is read by a program is not cut.
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else PIPED)
    if "tokens" in found:
        _print_episode(EpisodeView.model_validate(found), console)
        return
    head = f"{found['run_id']}: {found['status']}, {found['objective']}"
    console.print(Text(visible(head)))
    console.print(_span_table([SpanRow.model_validate(row) for row in found["spans"]]))
    for row in found.get("episodes", []):
        console.print(Text(f"{'solved  ' if row['solved'] else 'unsolved'} {visible(row['id'])}"))


def visible(text: str) -> str:
    """Return a text whose control characters are spelled out, so that none reaches a terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _span_table(rows: Sequence[SpanRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("span type")
    for name in ("trained", "spans", "tokens", "selected", "log-prob", "divergence"):
        table.add_column(name, justify="right")
    for row in rows:
        counts = (row.spans, row.tokens, row.selected)
        means = (row.logprob_mean, row.divergence_mean)
        table.add_row(
            row.span_type,
            "yes" if row.trained else "no",
            *map(str, counts),
            *map(_number, means),
        )
    return table


def _print_episode(view: EpisodeView, console: Console) -> None:
    verdict = "solved" if view.solved else "not solved"
    console.print(
        Text(
            visible(
                f"{view.trajectory_id}: {verdict}, {view.termination_reason}; expected "
                f"{view.expected}, answered {view.predicted}; policy {view.policy_version}"
            )
        )
    )
    for kind, text in view.texts:
        console.print(Text(f"[{kind}] {visible(text)}"))
    table = Table(box=None, pad_edge=False)
    for name in ("position", "id", "mask", "weight", "log-prob", "teacher", "entropy"):
        table.add_column(name, justify="right")
    for name in ("divergence", "span", "token"):
        table.add_column(name, no_wrap=True, overflow="fold")
    for row in view.tokens:
        table.add_row(*_cells(row))
    console.print(table)


def _cells(row: TokenRow) -> list[Text]:
    mask = ("M" if row.model else ".") + ("C" if row.critical else ".")
    numbers = (row.weight, row.logprob, row.teacher_logprob, row.teacher_entropy, row.divergence)
    piece = "" if row.piece is None else repr(row.piece)
    cells = [
        str(row.position),
        str(row.token_id),
        mask,
        *map(_number, numbers),
        row.segment_key,
        piece,
    ]
    return [Text(visible(cell)) for cell in cells]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
