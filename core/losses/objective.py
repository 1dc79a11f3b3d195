"""One loss per position, what it reads, what it promises and what it reports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from core.losses.laws import Laws
from core.losses.options import ObjectiveOptions
from core.losses.targets import BucketTargets, SharedTargets

Measured = tuple[Tensor, Mapping[str, Tensor]]
"""Value and diagnostics per position; the latter detached."""
Measure = Callable[[Any, Tensor, ObjectiveOptions], Measured]


@dataclass(frozen=True)
class Objective:
    """One loss per position as a pure function of targets and student logits."""

    name: str
    measure: Measure
    reads: frozenset[type]
    """Kinds of targets."""
    laws: Laws
    diagnostics: tuple[str, ...] = ()
    """What ``measure`` always reports."""
    support_diagnostics: tuple[str, ...] = ()
    """What it reports besides where the categories are a support and its tail."""

    def evaluate(self, targets: Any, logits_NV: Tensor, options: ObjectiveOptions) -> Tensor:
        """Return the value alone.

        Args:
            targets: Of a kind in ``reads``.
            logits_NV: Raw logits of the student.
            options: Numbers that the objective reads.

        Returns:
            ``[N]`` nats.

        Raises:
            ValueError: Targets and logits do not match, or an option is out of range.
        """
        return self.measure(targets, logits_NV, options)[0]

    def reported(self, targets: type, options: ObjectiveOptions) -> tuple[str, ...]:
        """Return the names of the diagnostics for targets of a kind.

        Args:
            targets: Kind of the targets.
            options: Whether full logits are reduced to a union support.

        Returns:
            Keys of the mapping that ``measure`` returns.
        """
        has_rest = targets in (BucketTargets, SharedTargets)
        on_support = has_rest or options.union_top_k is not None
        return self.diagnostics + (self.support_diagnostics if on_support else ())
