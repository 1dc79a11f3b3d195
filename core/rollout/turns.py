"""A generated turn, and what the host knows of the row that samples it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from core.rollout.stops import StopReason


@dataclass(frozen=True)
class GeneratedTurn:
    """One finished turn.

    Attributes:
        slot: Whose episode it belongs to.
        token_ids: All sampled ids, with an end-of-turn token and what follows a stop text.
        logprobs: Nats, one per token, under the distribution it was drawn from.
        kept_mass: Probability that truncation kept, one per token; None where nothing is truncated.
        stop: Why it ended.
    """

    slot: int
    token_ids: list[int]
    logprobs: list[float]
    kept_mass: list[float] | None
    stop: StopReason


@dataclass
class RowState:
    """Host side of a row."""

    slot: int | None = None
    """Whose episode it holds; None is nobody's."""
    pending: Sequence[int] = ()
    fed: int = 0
    cursor: int = 0
    budget: int = 0
    stream: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_mass: list[float] = field(default_factory=list)
