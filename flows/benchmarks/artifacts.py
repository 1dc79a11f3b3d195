"""What the flow run of a benchmark shows in the UI."""

from pathlib import Path
from typing import Any

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)

from core.runs.layout import SUMMARY
from flows.benchmarks.board import Board


def publish(board: Board, summary: dict[str, Any]) -> None:
    """Put table, summary and a link to the report on the flow run."""
    split = board.grid.benchmark.eval_split
    title = f"Success on {split}. {summary['note']}"
    create_table_artifact(summary["table"], key="opd-benchmark", description=title)
    create_markdown_artifact(
        (board.directory / SUMMARY).read_text(encoding="utf-8"),
        key="opd-benchmark-summary",
        description=f"{summary['name']}: every table of the report",
    )
    create_link_artifact(
        Path(summary["report"]).as_uri(),
        link_text=f"report of {summary['name']}",
        key="opd-benchmark-report",
        description="One page, opened from the disk of the machine that made it",
    )
