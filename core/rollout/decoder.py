"""The slot engine: many turns decode together, each as if alone.

Rows alternate between feeding context in blocks and sampling one token per step. When a group
feeds is a matter of throughput only: a row's blocks start at its own cursor, so neither the order
of steps nor the other rows reach its bits. Keys and values stay across turns; no token is fed twice
and nothing sampled is re-tokenised.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
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
from core.rollout.turns import GeneratedTurn, RowState

PATIENCE = 24
"""Decode steps, summed over the waiting rows of a group, before the group is prefilled although
others still sample: less idling than one prefill step costs, more than one row is worth."""


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
        self._states = [RowState() for _ in range(rows)]
        self._row_of: dict[int, int] = {}
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
            slot: The caller's name for the episode, below the number of slots.
            token_ids: The prompt.
            prefix: How many of its first tokens other episodes are likely to share.
            budget: Most tokens of the first turn, at least 1.
            stream: Key of its noise.
        """
        shared = min(prefix, len(token_ids) - 1)
        row = next(row for row, state in enumerate(self._states) if state.slot is None)
        if shared:
            self._prefixes.copy_into(self._rows.cache, row, token_ids[:shared])
        self._rows.place(row, shared)
        self._row_of[slot] = row
        self._states[row] = RowState(slot=slot, cursor=shared)
        self._feed_next(row, token_ids[shared:], budget, stream)

    @torch.inference_mode()
    def resume(self, slot: int, token_ids: Sequence[int], *, budget: int, stream: int) -> None:
        """Go on with an episode after an observation.

        Args:
            slot: Its name; its last turn was returned by ``advance``.
            token_ids: What the model reads next.
            budget: Most tokens of the next turn, at least 1.
            stream: Key of its noise.
        """
        row = self._row_of[slot]
        last_sampled = self._states[row].token_ids[-1]
        self._feed_next(row, [last_sampled, *token_ids], budget, stream)

    def _feed_next(self, row: int, pending: Sequence[int], budget: int, stream: int) -> None:
        state = self._states[row]
        state.pending, state.fed, state.budget, state.stream = pending, 0, budget, stream
        state.token_ids, state.logprobs, state.kept_mass = [], [], []
        self._waiting[row // self._shape.group].append(row)

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
            row for rows in self._waiting for row in rows if self._unfed(self._states[row]) == 0
        ]
        if not ready:
            return
        states = [self._states[row] for row in ready]
        greedy = self._sampling_spec.is_greedy
        self._rows.start_sampling(
            ready,
            [state.pending[-1] for state in states],
            None if greedy else [state.stream for state in states],
        )
        for row in ready:
            group = row // self._shape.group
            self._waiting[group].remove(row)
            self._sampling[group].append(row)

    @staticmethod
    def _unfed(state: RowState) -> int:
        return len(state.pending) - 1 - state.fed

    def _group_to_feed(self) -> int | None:
        """Return the group whose rows feed now, or None if sampling goes first."""
        waiting = [group for group, rows in enumerate(self._waiting) if rows]
        for group in waiting:
            if not self._sampling[group] or self._idle[group] >= PATIENCE:
                return group
        return None

    def _feed(self, group: int) -> None:
        """Write one block of every waiting row of a group."""
        size, block = self._shape.group, self._shape.block
        first = group * size
        table = [[0] * (block + 1) for _ in range(size)]
        for row in self._waiting[group]:
            state = self._states[row]
            count = min(block, self._unfed(state))
            piece = state.pending[state.fed : state.fed + count]
            table[row - first] = [*piece, *[0] * (block - count), count]
            state.fed += count
            state.cursor += count
        width = self._width(first, first + size, block, self._independence.prefill_widths)
        facts = torch.tensor(table, device=self._backend.device)
        rows = self._rows.window(first, first + size, width)
        self._backend.step(facts[:, :block], self._rows.block_positions(rows), rows.cache)
        rows.cursors_S1.add_(facts[:, block:])
        unfinished = any(self._unfed(self._states[row]) for row in self._waiting[group])
        # A group that has begun goes on: its ready rows would otherwise leave the rest behind.
        self._idle[group] = PATIENCE if unfinished else 0

    def _decode(self) -> list[GeneratedTurn]:
        """Sample one token in every sampling row."""
        self._close_ranks()
        first, stop = self._sampling_range()
        width = self._width(first, stop, 1, self._independence.decode_widths)
        rows = self._rows.window(first, stop, width)
        hidden_SQH = self._backend.step(rows.token_ids_S1, rows.cursors_S1, rows.cache)
        logits_SV = self._backend.project(hidden_SQH[:, 0])
        uniforms_S = rows.uniforms_SM.gather(1, rows.drawn_S1)[:, 0]
        draw = sample(logits_SV, self._sampling_spec, uniforms_S)
        rows.token_ids_S1[:, 0] = draw.token_ids_S
        self._rows.count_step()
        for group, waiting in enumerate(self._waiting):
            self._idle[group] += len(waiting)
        return self._take(first, _to_host(draw))

    def _take(self, first: int, columns: list[list[float]]) -> list[GeneratedTurn]:
        """Append what each sampling row drew, and return the turns that end with it."""
        finished: list[GeneratedTurn] = []
        token_ids, logprobs = columns[:2]
        for row in [row for rows in self._sampling for row in rows]:
            state, column = self._states[row], row - first
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
                finished.append(self._finish(row, reason))
        return finished

    def _finish(self, row: int, reason: StopReason) -> GeneratedTurn:
        self._sampling[row // self._shape.group].remove(row)
        self._rows.stop_sampling(row)
        state = self._states[row]
        kept_mass = state.kept_mass if self._sampling_spec.is_truncated else None
        assert state.slot is not None, "a row that samples holds an episode"
        return GeneratedTurn(state.slot, state.token_ids, state.logprobs, kept_mass, reason)

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Forget the episode of a slot; its row then widens no step."""
        row = self._row_of.pop(slot)
        self._states[row] = RowState()
        self._rows.place(row, 0)

    def _close_ranks(self) -> None:
        """Move episodes out of the last rows once a step of fewer rows can hold them all.

        Which row holds an episode reaches no bit; that is what the check at the start asks.
        """
        held = [row for row, state in enumerate(self._states) if state.slot is not None]
        enough = (count for count in self._independence.row_counts if count >= len(held))
        stop = min(enough, default=len(self._states))
        if held[-1] < stop:
            return
        free = sorted(set(range(stop)) - set(held))
        for target, source in zip(free, [row for row in held if row >= stop], strict=False):
            self._move(source, target)

    def _move(self, source: int, target: int) -> None:
        state = self._states[source]
        assert state.slot is not None, "only episodes are moved"
        self._rows.move(source, target, state.cursor)
        self._states[target], self._states[source] = state, RowState()
        self._row_of[state.slot] = target
        size = self._shape.group
        for lists in (self._waiting, self._sampling):
            if source in lists[source // size]:
                lists[source // size].remove(source)
                lists[target // size].append(target)

    def _sampling_range(self) -> tuple[int, int]:
        """Return the rows of a decode step: fewer than all where that is known to be harmless."""
        live = [row for rows in self._sampling for row in rows]
        first, span = min(live), max(live) + 1 - min(live)
        rows = len(self._states)
        enough = (count for count in self._independence.row_counts if span <= count <= rows)
        count = min(enough, default=rows)
        first = min(first, rows - count)
        return first, first + count

    def _width(self, first: int, stop: int, count: int, widths: Sequence[int]) -> int:
        """Return the key slots of a step that adds ``count`` tokens to rows ``[first, stop)``."""
        needed = max(state.cursor for state in self._states[first:stop]) + count
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
