"""The three layers of a run's configuration: as given, as validated, as decided."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.artifacts.record import Record
from core.artifacts.redaction import redact
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.syntax import write_document

_PLACES = {"store", "runs", "model_paths", "data_paths", "plugins", "cache_dir"}
"""Settings that are places on one machine: they are in ``local.json`` alone."""


@dataclass(frozen=True)
class Submission:
    """What a person gave, before anything was understood of it."""

    recipe: Recipe
    """As it was validated, before weights and files were replaced by digests."""
    runtime: Runtime
    source: bytes | None = None
    """The file, byte for byte; None for a recipe that was put together in code."""
    overrides: tuple[str, ...] = ()
    """``key=value`` changes to that file."""
    path: str | None = None
    """Where that file was."""


def validated_yaml(submission: Submission) -> bytes:
    """Return the recipe with its defaults, before places and ``auto`` were resolved."""
    return _document(submission.recipe, _portable(submission.runtime))


def resolved_yaml(recipe: Recipe, runtime: Runtime, records: Sequence[Record], name: str) -> bytes:
    """Return the recipe with every ``auto`` replaced by what was decided.

    Args:
        recipe: Weights and files of prompts by digest.
        runtime: As it was asked for.
        records: Of the artifacts of the run, in order; they know what happened.
        name: Of the run's directory.
    """
    settings = _portable(runtime) | {"run_id": name} | _decided(recipe, runtime, records)
    return _document(recipe, settings)


def layer(name: str, data: bytes) -> dict[str, Any]:
    """Return what the manifest says of one layer."""
    return {"file": name, "sha256": hashlib.sha256(data).hexdigest()}


def decided_device(records: Sequence[Record]) -> str | None:
    """Return the device that computed the newest part that says so, e.g. ``cuda:NVIDIA H200``."""
    return _newest(record.numeric_class and record.numeric_class.device for record in records)


def decided_chunk(records: Sequence[Record]) -> int | None:
    """Return the positions per slice of the loss that the newest step ended with."""
    return _newest(record.metrics.get("projection_chunk_size") for record in records)


def _portable(runtime: Runtime) -> dict[str, Any]:
    return runtime.model_dump(mode="json", exclude=_PLACES)


def _document(recipe: Recipe, settings: dict[str, Any]) -> bytes:
    values = {**recipe.model_dump(mode="json"), "runtime": settings}
    return write_document(redact(values)).encode()


def _decided(recipe: Recipe, runtime: Runtime, records: Sequence[Record]) -> dict[str, Any]:
    device = decided_device(records) or runtime.device
    batch = _newest(record.metrics.get("padded_trajectory_batch_size") for record in records)
    threads = _newest(record.numeric_class and record.numeric_class.threads for record in records)
    asked = runtime.trajectory_batch_size
    kept = runtime.cache_enabled
    strategy = _newest(record.metrics.get("memory_strategy") for record in records)
    return {
        "device": device.partition(":")[0],
        "threads": threads or runtime.threads,
        "chunk_size": decided_chunk(records) or runtime.chunk_size,
        "trajectory_batch_size": (batch or asked) if asked == "auto" else asked,
        "cache_enabled": recipe.models.backend != "toy" if kept == "auto" else kept,
        "memory_strategy": strategy or "resident",
    }


def _newest(values: Any) -> Any:
    found = [value for value in values if value is not None]
    return found[-1] if found else None
