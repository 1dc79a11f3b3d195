"""What a builder asks of the store: identity first, then what goes into the record beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from core.artifacts.code import CodeDigest
from core.artifacts.key import Key, compute_key
from core.artifacts.record import ArtifactRef, NumericClass
from core.errors import StoreError


@dataclass(frozen=True)
class PublishRequest:
    """One artifact to build.

    Args:
        kind: What it is, e.g. ``rollouts``.
        name: Human part of the address, e.g. ``toy-cycle3``; not identity.
        task: Name of the task that builds it.
        version: The task's ``VERSION``.
        spec: The smallest description the task needs.
        parents: Role to artifact; only their content digests enter the key.
        code: Sources behind the result; recorded, not identity.
        numeric_class: What may change its last bits, or a function that tells it after the build,
            when the device is known; recorded, not identity.
        seeds: Seeds it used, for the record.
        labels: Free notes for the record.
        strict_code: An artifact that other code built is no hit.
    """

    kind: str
    name: str
    task: str
    version: str
    spec: BaseModel | Mapping[str, Any]
    parents: Mapping[str, ArtifactRef] = field(default_factory=dict)
    code: CodeDigest | None = None
    numeric_class: NumericClass | Callable[[], NumericClass] | None = None
    seeds: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    strict_code: bool = False

    @cached_property
    def identity(self) -> Key:
        """Key and payload.

        Raises:
            KeyEncodingError: Something in ``spec`` has no canonical text.
        """
        return compute_key(self.task, self.version, self.spec, self.parents)

    @property
    def required_code(self) -> CodeDigest | None:
        """The code that a hit must have been built by; None where any will do."""
        return self.code if self.strict_code else None

    def measured_class(self) -> NumericClass | None:
        """Return the numeric class; called after the build."""
        return self.numeric_class() if callable(self.numeric_class) else self.numeric_class

    def check_address(self) -> None:
        """Refuse a kind or name that cannot be a directory, before anything is built.

        Raises:
            StoreError: ``kind`` or ``name`` is not plain.
        """
        try:
            ArtifactRef(kind=self.kind, name=self.name, key=self.identity.key, digest="0" * 64)
        except ValidationError as error:
            raise StoreError(
                f"artifact {self.kind}/{self.name}: not a valid kind or name",
                "Kinds are lower_case; names hold letters, digits and any of _ . + = -",
            ) from error
