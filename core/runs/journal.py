"""``events.jsonl``: what happened when, one line per event, under the seeds' names.

Lines are appended while a run goes on, across its attempts: a run that was killed and started again
has both in it. A run that starts over after it was completed begins a new journal.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.artifacts.record import Record
from core.artifacts.redaction import redact
from core.runs.layout import EVENTS

Json = dict[str, Any]


class Journal:
    """The events of one run directory.

    Args:
        directory: It exists.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / EVENTS

    def clear(self) -> None:
        """Begin anew."""
        self.path.unlink(missing_ok=True)

    def write(self, event: str, **facts: Any) -> None:
        """Append one event."""
        row = {"event": event, "ts": now(), **redact(facts)}
        line = f"{json.dumps(row, separators=(',', ':'), allow_nan=False)}\n"
        with self.path.open("ab") as stream:
            stream.write(line.encode())

    def mend(self) -> None:
        """End a last line that a kill cut off, so that the next one stands by itself."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            self.path.write_bytes(whole)


def now() -> str:
    """Return the time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def step_events(task: str, record: Record, *, cached: bool) -> Iterator[tuple[str, Json]]:
    """Yield the events that a step amounts to.

    Args:
        task: Name of the step.
        record: Of its artifact.
        cached: Whether it was there already.
    """
    facts = {"step": record.name, "key": record.key, "cached": cached}
    metrics = record.metrics
    if task == "prepare_teacher" and metrics.get("fitted"):
        yield "toy_teacher_fitted", facts | {"last_loss": metrics.get("last_loss")}
    elif task == "sample_rollouts":
        yield "rollouts_collected", facts | _some(metrics, "success_rate", "generated_tokens")
    elif task == "score_rollouts" and metrics.get("selected_model_tokens") == 0:
        yield "cycle_skipped_no_selected_positions", facts
    elif task == "freeze_dataset":
        yield "offline_dataset_created", facts | _some(metrics, "success_rate")
    elif task == "adopt_dataset":
        yield "persisted_offline_dataset_attached", facts | dict(metrics)
    elif task in ("qualify_teacher", "adopt_qualification"):
        yield "teacher_qualified", facts | dict(metrics)
    elif task == "evaluate_student":
        yield "eval", facts | _some(metrics, "success_rate", "solved")
    elif task in ("update_student", "cold_start"):
        yield from _state_events(task, record, facts)


def _state_events(task: str, record: Record, facts: Json) -> Iterator[tuple[str, Json]]:
    metrics, asked = record.metrics, record.numeric_class and record.numeric_class.chunk
    used = metrics.get("projection_chunk_size")
    if task == "cold_start":
        yield "sft_warmup_cycle", facts | _some(metrics, "optimizer_steps", "last_loss")
    if asked and used and used < asked:
        yield "oom_chunk_retry", facts | {"chunk_size": used, "asked": asked}
    if "token_analysis.jsonl" in record.files:
        yield "token_analysis_written", facts
    yield "checkpoint_saved", facts | {"digest": record.digest} | _some(metrics, "loss")


def _some(metrics: Json, *names: str) -> Json:
    return {name: metrics[name] for name in names if name in metrics}
