"""The slot engine: many turns decode together, each as if alone.

Rows alternate between feeding context in blocks and sampling one token per step. When a group
feeds is a matter of throughput only: a row's blocks start at its own cursor, so neither the order
of steps nor the other rows reach its bits. Keys and values stay across turns; no token is fed twice
and nothing sampled is re-tokenised.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import torch

from core.errors import NumericsError
from core.models.backend import Backend
from core.rollout.independence import measured_independence
from core.rollout.limits import SamplingSpec
from core.rollout.prefixes import Prefixes
from core.rollout.rows import Rows
from core.rollout.sampler import Draw, sample
from core.rollout.shape import EngineShape
from core.rollout.stops import StopReason, StopScanner

PATIENCE = 24
"""Decode steps, summed over the waiting rows of a group, before the group is prefilled although
others still sample: less idling than one prefill step costs, more than one row is worth."""


@dataclass(frozen=True)
class GeneratedTurn:
    """One finished turn.

    Attributes:
        slot: Row that sampled it.
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
class _Slot:
    """Host side of a row that holds an episode."""

    pending: Sequence[int] = ()
    fed: int = 0
    cursor: int = 0
    budget: int = 0
    stream: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_mass: list[float] = field(default_factory=list)


class Decoder:
    """Decodes turns of up to ``slots`` episodes.

    Args:
        backend: The model.
        shape: Sizes of the engine's steps.
        sampling: How tokens are drawn.
        slots: Episodes that may be in progress, at most ``shape.rows``.
        stop_texts: Texts that end a turn, or how often each must be complete to do so.
        max_new_tokens: Most tokens of any turn.
    """

    def __init__(
        self,
        backend: Backend,
        shape: EngineShape,
        sampling: SamplingSpec,
        *,
        slots: int,
        stop_texts: Sequence[str] | Mapping[str, int],
        max_new_tokens: int,
    ) -> None:
        self._backend = backend
        self._shape = shape
        self._sampling_spec = sampling
        # Before the cache is allocated: the check needs one of its own.
        self._independence = measured_independence(backend, shape)
        enough = [count for count in self._independence.row_counts if count >= slots]
        rows = min(enough, default=shape.rows)
        with torch.inference_mode():
            self._rows = Rows(backend, shape, rows, max_new_tokens)
        self._prefixes = Prefixes(backend, shape)
        self._stops = StopScanner(backend.tokenizer, stop_texts)
        self._slots = [_Slot() for _ in range(rows)]
        groups = rows // shape.group
        self._waiting: list[list[int]] = [[] for _ in range(groups)]
        self._sampling: list[list[int]] = [[] for _ in range(groups)]
        self._idle = [0] * groups

    @torch.inference_mode()
    def admit(
        self, slot: int, token_ids: Sequence[int], *, prefix: int, budget: int, stream: int
    ) -> None:
        """Start an episode in a free slot.

        Args:
            slot: The row.
            token_ids: The prompt.
            prefix: How many of its first tokens other episodes are likely to share.
            budget: Most tokens of the first turn, at least 1.
            stream: Key of its noise.
        """
        shared = min(prefix, len(token_ids) - 1)
        if shared:
            self._prefixes.copy_into(self._rows.cache, slot, token_ids[:shared])
        self._rows.place(slot, shared)
        self._slots[slot] = _Slot(cursor=shared)
        self._feed_next(slot, token_ids[shared:], budget, stream)

    @torch.inference_mode()
    def resume(self, slot: int, token_ids: Sequence[int], *, budget: int, stream: int) -> None:
        """Go on with an episode after an observation.

        Args:
            slot: The row, whose last turn was returned by ``advance``.
            token_ids: What the model reads next.
            budget: Most tokens of the next turn, at least 1.
            stream: Key of its noise.
        """
        last_sampled = self._slots[slot].token_ids[-1]
        self._feed_next(slot, [last_sampled, *token_ids], budget, stream)

    def _feed_next(self, slot: int, pending: Sequence[int], budget: int, stream: int) -> None:
        state = self._slots[slot]
        state.pending, state.fed, state.budget, state.stream = pending, 0, budget, stream
        state.token_ids, state.logprobs, state.kept_mass = [], [], []
        self._waiting[slot // self._shape.group].append(slot)

    @torch.inference_mode()
    def advance(self, is_due: Callable[[], bool] | None = None) -> list[GeneratedTurn]:
        """Run steps until at least one turn is finished; nothing where no row has a turn to do.

        Args:
            is_due: Asked before each step whether the caller has something else to do.

        Raises:
            NumericsError: The model's logits are not finite.
        """
        finished: list[GeneratedTurn] = []
        while not finished and (any(self._waiting) or any(self._sampling)):
            if is_due is not None and is_due():
                break
            self._start_ready()
            group = self._group_to_feed()
            if group is None:
                finished = self._decode()
            else:
                self._feed(group)
        return finished

    def _start_ready(self) -> None:
        """Let rows sample whose last context token is all that is left to feed."""
        ready = [
            slot for slots in self._waiting for slot in slots if self._unfed(self._slots[slot]) == 0
        ]
        if not ready:
            return
        states = [self._slots[slot] for slot in ready]
        greedy = self._sampling_spec.is_greedy
        self._rows.start_sampling(
            ready,
            [state.pending[-1] for state in states],
            None if greedy else [state.stream for state in states],
        )
        for slot in ready:
            group = slot // self._shape.group
            self._waiting[group].remove(slot)
            self._sampling[group].append(slot)

    @staticmethod
    def _unfed(state: _Slot) -> int:
        return len(state.pending) - 1 - state.fed

    def _group_to_feed(self) -> int | None:
        """Return the group whose rows feed now, or None if sampling goes first."""
        waiting = [group for group, slots in enumerate(self._waiting) if slots]
        for group in waiting:
            if not self._sampling[group] or self._idle[group] >= PATIENCE:
                return group
        return None

    def _feed(self, group: int) -> None:
        """Write one block of every waiting row of a group."""
        size, block = self._shape.group, self._shape.block
        first = group * size
        table = [[0] * (block + 1) for _ in range(size)]
        for slot in self._waiting[group]:
            state = self._slots[slot]
            count = min(block, self._unfed(state))
            piece = state.pending[state.fed : state.fed + count]
            table[slot - first] = [*piece, *[0] * (block - count), count]
            state.fed += count
            state.cursor += count
        width = self._width(first, first + size, block, self._independence.prefill_widths)
        facts = torch.tensor(table, device=self._backend.device)
        rows = self._rows.window(first, first + size, width)
        self._backend.step(facts[:, :block], self._rows.block_positions(rows), rows.cache)
        rows.cursors_S1.add_(facts[:, block:])
        unfinished = any(self._unfed(self._slots[slot]) for slot in self._waiting[group])
        # A group that has begun goes on: its ready rows would otherwise leave the rest behind.
        self._idle[group] = PATIENCE if unfinished else 0

    def _decode(self) -> list[GeneratedTurn]:
        """Sample one token in every sampling row."""
        first, stop = self._sampling_range()
        width = self._width(first, stop, 1, self._independence.decode_widths)
        rows = self._rows.window(first, stop, width)
        hidden_SQH = self._backend.step(rows.token_ids_S1, rows.cursors_S1, rows.cache)
        logits_SV = self._backend.project(hidden_SQH[:, 0])
        uniforms_S = rows.uniforms_SM.gather(1, rows.drawn_S1)[:, 0]
        draw = sample(logits_SV, self._sampling_spec, uniforms_S)
        rows.token_ids_S1[:, 0] = draw.token_ids_S
        self._rows.count_step()
        for group, slots in enumerate(self._waiting):
            self._idle[group] += len(slots)
        return self._take(first, _to_host(draw))

    def _take(self, first: int, columns: list[list[float]]) -> list[GeneratedTurn]:
        """Append what each sampling row drew, and return the turns that end with it."""
        finished: list[GeneratedTurn] = []
        token_ids, logprobs = columns[:2]
        for slot in [slot for slots in self._sampling for slot in slots]:
            state, column = self._slots[slot], slot - first
            if not isfinite(logprobs[column]):
                raise NumericsError(
                    f"{self._backend.name} gave logits that are not finite at position "
                    f"{state.cursor}",
                    "Its weights are damaged or training has diverged; go back to an earlier "
                    "state.",
                )
            state.cursor += 1
            state.token_ids.append(int(token_ids[column]))
            state.logprobs.append(logprobs[column])
            if len(columns) == 3:
                state.kept_mass.append(columns[2][column])
            reason = self._stops.reason(state.token_ids, state.budget)
            if reason is not None:
                finished.append(self._finish(slot, reason))
        return finished

    def _finish(self, slot: int, reason: StopReason) -> GeneratedTurn:
        self._sampling[slot // self._shape.group].remove(slot)
        self._rows.stop_sampling(slot)
        state = self._slots[slot]
        kept_mass = state.kept_mass if self._sampling_spec.is_truncated else None
        return GeneratedTurn(slot, state.token_ids, state.logprobs, kept_mass, reason)

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Forget the episode of a slot; its row then widens no step."""
        self._slots[slot] = _Slot()
        self._rows.place(slot, 0)

    def _sampling_range(self) -> tuple[int, int]:
        """Return the rows of a decode step: fewer than all where that is known to be harmless."""
        groups = [group for group, slots in enumerate(self._sampling) if slots]
        size = self._shape.group
        first, stop = groups[0] * size, (groups[-1] + 1) * size
        if stop - first in self._independence.row_counts:
            return first, stop
        return 0, len(self._slots)

    def _width(self, first: int, stop: int, count: int, widths: Sequence[int]) -> int:
        """Return the key slots of a step that adds ``count`` tokens to rows ``[first, stop)``."""
        needed = max(state.cursor for state in self._slots[first:stop]) + count
        index = bisect_left(widths, needed)
        return widths[index] if index < len(widths) else self._shape.width


def _to_host(draw: Draw) -> list[list[float]]:
    """Return token ids, log-probabilities and perhaps kept mass by one transfer.

    Ids are exact in float64.
    """
    columns = [draw.token_ids_S.to(torch.float64), draw.logprobs_S]
    if draw.kept_mass_S is not None:
        columns.append(draw.kept_mass_S)
    return torch.stack(columns).tolist()
