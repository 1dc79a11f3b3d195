"""What an objective promises; ``tests/core/losses/test_laws.py`` holds every one of them to it.

Always tested, whatever is declared here: finite values and gradients on a hostile grid, parity with
a float64 brute force, rows that do not see each other, splits and chunks that change nothing, and
no gradient into the teacher.
"""

from collections.abc import Callable
from dataclasses import dataclass

from core.losses.options import ObjectiveOptions


@dataclass(frozen=True)
class Laws:
    """What holds beyond the laws of all."""

    zero_at_identity: bool = True
    """The value vanishes where student, teacher and sampler are one."""
    flat_at_identity: bool = True
    """So does the gradient."""
    non_negative: bool = True
    upper_bound: Callable[[ObjectiveOptions], float] | None = None
    """Largest value in nats before the τ² factor; None where there is none."""
    gradient_is_of_the_value: bool = True
    """False where a factor or clip is a constant for the gradient by definition."""
