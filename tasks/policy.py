"""The cache policy: what Prefect remembers is made to agree with the store before it looks.

The store alone says whether a result exists. Prefect's record is a pointer to it, and is compared
byte for byte with the one we would write: any other (altered, of a foreign serializer, of a lost
artifact) is replaced or blanked without ever being decoded.
"""

from dataclasses import dataclass
from typing import Any, Protocol, cast

from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.results import ResultStore

from core.artifacts.record import ArtifactRef

NOTHING = b""
"""Content of a record that Prefect takes for none, since it cannot be decoded."""


class Lookup(Protocol):
    """The parameter ``call`` of a step's Prefect task."""

    @property
    def cache_key(self) -> str:
        """Name of the record."""
        ...

    @property
    def found(self) -> ArtifactRef | None:
        """What the store holds for it."""
        ...


class Storage(Protocol):
    """Prefect's file system for results; ``_sync`` keeps it from returning a coroutine."""

    def read_path(self, path: str, *, _sync: bool) -> bytes:
        """Return the content of a file."""
        ...

    def write_path(self, path: str, content: bytes, *, _sync: bool) -> Any:
        """Replace the content of a file."""
        ...


@dataclass
class StorePolicy(CachePolicy):
    """A step is cached exactly where the store holds its artifact."""

    def compute_key(
        self,
        task_ctx: TaskRunContext,
        inputs: dict[str, Any],
        flow_parameters: dict[str, Any],
        **kwargs: Any,
    ) -> str:
        """Return the record's name, after making the record agree with the store.

        Prefect calls this before each attempt, right before it looks for the record.
        """
        call: Lookup = inputs["call"]
        point(task_ctx.result_store, call.cache_key, call.found)
        return call.cache_key


def point(results: ResultStore, key: str, ref: ArtifactRef | None) -> None:
    """Make the record of a key point to an artifact, or to nothing."""
    storage = cast("Storage", results.result_storage)
    present = _read(storage, key)
    if ref is not None:
        record = results.create_result_record(ref, key)
        if present != record.serialize():
            results.persist_result_record(record)
    elif present not in (None, NOTHING):
        storage.write_path(key, NOTHING, _sync=True)


def _read(storage: "Storage", key: str) -> bytes | None:
    try:
        return storage.read_path(key, _sync=True)
    except (OSError, ValueError):  # LocalFileSystem says ValueError where there is no such file
        return None
