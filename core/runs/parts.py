"""The artifacts of one run by role, as a run directory and a report read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.artifacts.record import ArtifactRef, Record
from core.artifacts.store import Store


@dataclass(frozen=True)
class RunArtifacts:
    """What a run has left in the store, so far."""

    parts: Mapping[str, ArtifactRef] = field(default_factory=dict)
    """``cold_start``, ``evaluation_0000``, ``rollouts_0000``, ``targets_0000``, ``student_0000``"""
    student: ArtifactRef | None = None
    """The newest state."""
    report: ArtifactRef | None = None
    inputs: Mapping[str, ArtifactRef] = field(default_factory=dict)
    """``tasks``, ``held_out``, ``traces``, ``teacher``."""


class Parts:
    """Artifacts by role, with their places and records; each record is read once."""

    def __init__(self, store: Store, refs: Mapping[str, ArtifactRef]) -> None:
        self._store = store
        self._records: dict[str, Record] = {}
        self.refs = dict(refs)

    def numbered(self, role: str) -> list[tuple[int, str]]:
        """Return number and full role of every artifact of a kind, ascending."""
        prefix = f"{role}_"
        numbers = [name.removeprefix(prefix) for name in self.refs if name.startswith(prefix)]
        return sorted((int(n), prefix + n) for n in numbers if n.isdigit())

    def path(self, role: str) -> Path:
        """Return an artifact's directory."""
        return self._store.path(self.refs[role])

    def record(self, role: str) -> Record:
        """Return an artifact's record.

        Raises:
            StoreError: It has none.
        """
        if role not in self._records:
            self._records[role] = self._store.record(self.refs[role])
        return self._records[role]

    def has(self, role: str, name: str) -> bool:
        """Tell whether an artifact holds a file."""
        return role in self.refs and (self.path(role) / name).exists()
