"""The sizes of an engine step. They decide the last bits of a result, so they are constants."""

from dataclasses import dataclass
from math import ceil

from core.errors import InputError
from core.models.backend import Backend
from core.rollout.limits import EpisodeLimits

CPU_BLOCK_TOKENS = 32
"""Tokens of one prefill step on the CPU, where a row is prefilled alone: a step costs what its
tokens cost, observations come one at a time, and other rows would be computed for nothing."""
ACCELERATOR_BLOCK_TOKENS = 64
COUNT_UNIT = 8
"""A decode step on the CPU takes a multiple of so many rows, where the bits allow it."""
WIDTH_UNIT = 64
MOST_WIDTHS = 16


@dataclass(frozen=True)
class EngineShape:
    """Sizes of the engine's steps for one backend and one limit of tokens.

    Attributes:
        rows: Physical rows of a decode step.
        width: Key slots per row: the longest transcript and one block beyond it, rounded up to
            whole ``WIDTH_UNIT``s, where matrix kernels treat the slots of all widths alike.
        group: Rows of a prefill step; divides ``rows``.
        block: Tokens per row of a prefill step.
        row_counts: Smaller numbers of rows that a decode step may use where the bits allow it.
        widths: Smaller numbers of key slots, likewise.
    """

    rows: int
    width: int
    group: int
    block: int
    row_counts: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()

    @classmethod
    def of(cls, backend: Backend, limits: EpisodeLimits) -> "EngineShape":
        """Return the sizes for a backend.

        Raises:
            InputError: Episodes may grow longer than the model's context.
        """
        total = limits.max_total_tokens
        if total > backend.max_positions:
            raise InputError(
                f"max_total_tokens {total} exceeds the {backend.max_positions} positions of "
                f"{backend.name}",
                "Lower rollout.max_total_tokens or choose a model with a longer context.",
            )
        on_cpu = backend.device.type == "cpu"
        wanted = CPU_BLOCK_TOKENS if on_cpu else ACCELERATOR_BLOCK_TOKENS
        # A block may pad up to its last token past the transcript's end, where a step must still be
        # allowed to go; a model without that room is prefilled in smaller blocks.
        block = min(wanted, backend.step_positions - total + 1)
        rows = backend.physical_rows
        width = ceil((total + block - 1) / WIDTH_UNIT) * WIDTH_UNIT
        if not on_cpu:
            return cls(rows, width, rows, block)
        return cls(
            rows=rows,
            width=width,
            group=1,
            block=block,
            row_counts=tuple(range(COUNT_UNIT, rows, COUNT_UNIT)),
            widths=_widths(width, backend.hidden_size),
        )


def _widths(width: int, hidden_size: int) -> tuple[int, ...]:
    """Return multiples of a unit below ``width``.

    Attention over w slots costs about w per hidden unit and the rest of a layer about the hidden
    width, so steps of less than that are not worth checking.
    """
    rounded = hidden_size // WIDTH_UNIT * WIDTH_UNIT
    unit = max(WIDTH_UNIT, rounded, ceil(width / MOST_WIDTHS / WIDTH_UNIT) * WIDTH_UNIT)
    return tuple(range(unit, width, unit))
