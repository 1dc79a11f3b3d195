"""What goes into a run directory: files to link, files to write, and what they say."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.artifacts.codec import read_json
from core.artifacts.record import FileEntry, Record
from core.artifacts.redaction import redact
from core.artifacts.store import Store
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.runs import facts, layout
from core.runs.checkpoints import checkpoint_sources, kept_checkpoints
from core.runs.configs import Submission, layer, resolved_yaml, validated_yaml
from core.runs.local import local_facts
from core.runs.manifest import ArtifactEntry
from core.runs.parts import Parts, RunArtifacts
from core.runs.rows import dump_rows, evaluations_document, joined, metrics_rows
from core.runs.targets import index_targets, shard_sources

Json = dict[str, Any]


@dataclass
class RunContents:
    """Everything but the manifest and the events."""

    written: dict[str, list[bytes]] = field(default_factory=dict)
    """Content of each file that is made here, by its place."""
    linked: dict[str, Path] = field(default_factory=dict)
    """File of the store behind each other one, by its place."""
    entries: dict[str, FileEntry] = field(default_factory=dict)
    """Size and SHA-256 of all of them."""

    def write(self, name: str, chunks: list[bytes]) -> None:
        """Add a file that is made here."""
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        self.written[name] = chunks
        self.entries[name] = FileEntry(sha256=digest.hexdigest(), size=sum(map(len, chunks)))

    def link(self, name: str, source: Path, entry: FileEntry) -> None:
        """Add a file of the store."""
        self.linked[name], self.entries[name] = source, entry


def opening_contents(given: Submission, machine: Json) -> RunContents:
    """Return what is known before the first step: configuration as given, and the machine."""
    found = RunContents()
    if given.source is not None:
        found.write(layout.SUBMITTED, [given.source])
    found.write(layout.VALIDATED, [validated_yaml(given)])
    found.write(layout.ENVIRONMENT, [_json(redact(machine))])
    return found


def run_contents(
    store: Store,
    artifacts: RunArtifacts,
    recipe: Recipe,
    runtime: Runtime,
    given: Submission,
    machine: Json,
) -> RunContents:
    """Return every file of a run, as far as it came.

    Raises:
        StoreError: An artifact is gone or damaged.
    """
    parts = Parts(store, artifacts.parts)
    records = [parts.record(role) for role in parts.refs]
    name = layout.directory_name(recipe, runtime)
    found = opening_contents(given, machine)
    found.write(layout.RESOLVED, [resolved_yaml(recipe, runtime, records, name)])
    found.write(layout.METRICS, dump_rows(metrics_rows(parts, recipe)))
    found.write(layout.EVALUATIONS, [_json(evaluations_document(parts, recipe))])
    for file, chunks in joined(parts).items():
        found.write(file, chunks)
    _add_targets(found, parts)
    _add_checkpoints(found, _states(store, artifacts))
    if artifacts.report is not None:
        _add_report(found, store, store.record(artifacts.report))
    local = local_facts(recipe, runtime, given)
    found.write(layout.LOCAL, [_json(local.model_dump(mode="json"))])
    return found


def config_layers(contents: RunContents, overrides: Sequence[str]) -> Json:
    """Return what the manifest says of the configuration: layers by digest, and the overrides."""
    names = {
        "submitted": layout.SUBMITTED,
        "validated": layout.VALIDATED,
        "resolved": layout.RESOLVED,
    }
    layers: Json = {
        role: layer(name, b"".join(contents.written[name])) if name in contents.written else None
        for role, name in names.items()
    }
    return layers | {"overrides": list(overrides)}


def run_facts(
    store: Store, artifacts: RunArtifacts, recipe: Recipe, runtime: Runtime, gpu: Json
) -> Json:
    """Return the blocks of the manifest that the steps of a run tell."""
    parts = Parts(store, artifacts.parts)
    records = [parts.record(role) for role in parts.refs]
    splits = {
        "train" if role == "tasks" else recipe.eval.split: store.record(ref).metrics
        for role, ref in artifacts.inputs.items()
        if role in ("tasks", "held_out")
    }
    sizes = {name: found["tasks"] for name, found in splits.items() if "tasks" in found}
    state = _of_student(store, artifacts, "state.json").get("counters", {})
    models = facts.model_facts(recipe, runtime, parts, records)
    return {
        "environment": facts.environment_facts(recipe, sizes),
        "models": models,
        "memory": facts.memory_facts(runtime, records),
        "counters": state,
        "policy_version": state.get("parameter_version"),
        "budget": _of_student(store, artifacts, "budget.json"),
        "measurement_status": facts.measurement_facts(models["device"], gpu),
        "provenance": facts.provenance_facts(records),
        "artifacts": {role: _entry(parts.record(role)) for role in parts.refs},
        "inputs": dict(artifacts.inputs),
        "student": artifacts.student,
        "report": artifacts.report,
    }


def _add_targets(found: RunContents, parts: Parts) -> None:
    index = index_targets(parts)
    if not index.shards:
        return
    sources = shard_sources(parts, index)
    for shard in index.shards:
        entry = FileEntry(sha256=shard.sha256, size=shard.size)
        found.link(f"{layout.TARGETS}/{shard.file}", sources[shard.file], entry)
    found.write(layout.TARGETS_INDEX, [_json(index.model_dump(mode="json"), indent=None)])


def _add_checkpoints(found: RunContents, parts: Parts) -> None:
    for name, checkpoint in kept_checkpoints(parts).items():
        place = f"{layout.CHECKPOINTS}/{name}"
        for file, source in checkpoint_sources(parts, checkpoint.cycle).items():
            found.link(f"{place}/{file}", source, checkpoint.files[file])
        document = _json(checkpoint.model_dump(mode="json"))
        found.write(f"{place}/{layout.CHECKPOINT}", [document])


def _add_report(found: RunContents, store: Store, record: Record) -> None:
    for name in (layout.REPORT, layout.SUMMARY):
        if name in record.files:
            found.link(name, store.path(record.ref) / name, record.files[name])


def _states(store: Store, artifacts: RunArtifacts) -> Parts:
    """Return the parts of a run, where one that trained nothing has its untrained state."""
    trained = "cold_start" in artifacts.parts or "student_0000" in artifacts.parts
    untrained = {} if trained or artifacts.student is None else {"cold_start": artifacts.student}
    return Parts(store, {**artifacts.parts, **untrained})


def _of_student(store: Store, artifacts: RunArtifacts, name: str) -> Json:
    if artifacts.student is None:
        return {}
    path = store.path(artifacts.student) / name
    return read_json(path) if path.exists() else {}


def _entry(record: Record) -> ArtifactEntry:
    numeric = record.numeric_class
    return ArtifactEntry(
        ref=record.ref,
        task=record.task,
        seconds=record.provenance.wall_time_s,
        numeric_class=numeric.model_dump(exclude_none=True) if numeric is not None else {},
        code_digest=record.code.digest if record.code is not None else "",
    )


def _json(value: Any, indent: int | None = 1) -> bytes:
    return (json.dumps(value, indent=indent, allow_nan=False) + "\n").encode()
