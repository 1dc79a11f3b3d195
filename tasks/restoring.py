"""Makes an artifact again whose large files were removed to save space: its record says how."""

import json
import logging
from typing import Any, Protocol

from pydantic import BaseModel

from core.artifacts.record import ArtifactRef, Record
from core.errors import StoreError
from core.recipe.runtime import Runtime

logger = logging.getLogger(__name__)


class Call(Protocol):
    """One call of a step, ready to be run."""

    def run(self) -> ArtifactRef:
        """Publish its artifact."""
        ...


class Maker(Protocol):
    """A step, as far as it is needed to make an artifact from its record."""

    @property
    def version(self) -> str:
        """Part of the key."""
        ...

    @property
    def spec_type(self) -> type[BaseModel]:
        """Type of its spec."""
        ...

    def prepare(
        self, spec: Any, *, runtime: Runtime, name: str, **parents: ArtifactRef | None
    ) -> Call:
        """Describe a call."""
        ...


STEPS: dict[str, Maker] = {}
"""Every step that was imported, by name: a record names the one that made it."""


def remake(record: Record, runtime: Runtime) -> ArtifactRef:
    """Make an artifact again from nothing but its record.

    Raises:
        StoreError: No step of this version makes such an artifact, or other bytes came out.
    """
    maker = STEPS.get(record.task)
    if maker is None or maker.version != record.version:
        raise StoreError(
            f"{record.ref.address}: large files were removed, and no step of this version makes it",
            "Run the recipe that it came from again.",
        )
    spec = maker.spec_type.model_validate_json(json.dumps(record.payload["spec"]))
    call = maker.prepare(spec, runtime=runtime, name=record.name, **record.parents)
    logger.info("%s: making what was removed to save space again", record.ref.address)
    made = call.run()
    if made != record.ref:
        raise StoreError(
            f"{record.ref.address}: made again, it holds other bytes than before",
            "Run the recipe again: what depends on it is made anew.",
        )
    return made
