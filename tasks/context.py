"""What a step works with while it builds: its parents, its output directory, where to compute."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from core.artifacts import provenance
from core.artifacts.key import canonical_json
from core.artifacts.record import ArtifactRef, NumericClass, Record
from core.artifacts.store import Store
from core.errors import StoreError
from core.recipe.runtime import Runtime

if TYPE_CHECKING:
    from core.models.building import Placement
    from core.training.progress import Progress


@dataclass(frozen=True)
class StepContext:
    """First argument of every step."""

    store: Store
    runtime: Runtime
    out: Path
    """Empty directory; what the step writes here becomes the artifact."""
    record_numeric_class: Callable[[NumericClass], None]
    """Replaces the numeric class that the record would get, once a step knows better."""
    kept: Path
    """Where the step may keep how far it is; gone once its artifact is published."""
    code: str
    """Digest of the sources behind the step."""

    def path(self, ref: ArtifactRef) -> Path:
        """Return the directory of a parent, after checking that it holds the bytes it names.

        Raises:
            StoreError: It is gone or altered.
        """
        problems = self.store.verify(ref)
        if problems:
            raise StoreError(problems[0], "Run again: the artifact will be rebuilt.")
        return self.store.path(ref)

    def record(self, ref: ArtifactRef) -> Record:
        """Return the record of a parent."""
        return self.store.record(ref)

    def progress(self, numeric: NumericClass) -> "Progress":
        """Return where a long fit keeps its states, for this code, these versions and sizes.

        Args:
            numeric: What may change the last bits of the result.
        """
        from core.training.progress import Progress

        origin = provenance.capture()
        stamp = canonical_json(
            {
                "code": self.code,
                "numeric": numeric.model_dump(mode="json", exclude_none=True),
                **{name: origin[name] for name in ("python", "packages", "hardware")},
            }
        )
        return Progress(self.kept, stamp, self.runtime.progress_seconds)

    @cached_property
    def placement(self) -> "Placement":
        """Device and model directories."""
        from core.models.building import place

        return place(self.runtime)

    @property
    def opened_a_model(self) -> bool:
        """Whether the step asked where models are placed; only then torch is loaded."""
        return "placement" in vars(self)
