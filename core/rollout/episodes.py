"""Many episodes through one decoder: a slot whose episode ends takes the next task at once."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush

from core.environments.base import Environment, Task
from core.errors import InputError
from core.models.backend import Backend
from core.models.framing import frame_template
from core.recipe.schema.rollout import OwnTemplate
from core.rollout.decoder import Decoder
from core.rollout.episode import Episode
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.noise import stream_key
from core.rollout.shape import EngineShape
from core.rollout.turns import GeneratedTurn
from core.trajectory.trajectory import Trajectory

Progress = Callable[[int, int], None]
"""Called with the number of finished episodes and of all."""


def run_episodes(
    backend: Backend,
    make_environment: Callable[[], Environment],
    tasks: Sequence[Task],
    limits: EpisodeLimits,
    sampling: SamplingSpec,
    *,
    seed: int,
    trajectory_ids: Sequence[str],
    policy_version: int,
    model_digest: str | None,
    slots: int,
    progress: Progress | None = None,
    template: OwnTemplate | None = None,
    hinted: bool = False,
    openings: Sequence[Sequence[GeneratedTurn]] | None = None,
) -> list[Trajectory]:
    """Let the model solve each task once.

    An episode's tokens and log-probabilities depend on the weights, its task, its id and the seed.
    They do not depend on the other tasks, their order or ``slots``.

    Args:
        backend: The model.
        make_environment: Makes one environment per episode.
        tasks: What to solve; a task may occur twice, under two ids.
        limits: When an episode ends.
        sampling: How tokens are drawn.
        seed: Seed of the run.
        trajectory_ids: One unique name per task, which also names its noise.
        policy_version: Optimizer steps behind the weights.
        model_digest: Content digest of the weights.
        slots: Episodes that decode together, at most the backend's physical rows.
        progress: Told of every finished episode.
        template: Use of the tokenizer's own template; None is ChatML.
        hinted: Show the model each task's hint: a teacher with privileged context that acts itself.
        openings: Turns of another policy that each episode begins with; None is no turn. The world
            sees them again; they count as turns and tokens of the episode.

    Returns:
        One trajectory per task, in the order of ``tasks``; where a template rewrote the history of
        an episode, its branches in their order.

    Raises:
        InputError: Episodes may outgrow the model's context, the ids do not fit the tasks, or
            ``slots`` is below 1.
        NumericsError: The model's logits are not finite.
        ChatTemplateError: The tokenizer's template cannot frame these episodes.
    """
    _check(tasks, trajectory_ids, slots)
    facts = {"source": "policy", "seed": seed, **asdict(sampling)}
    used = max(1, min(slots, backend.physical_rows, len(tasks)))
    run = _Run(
        backend,
        make_environment,
        limits,
        sampling,
        seed=seed,
        slots=used,
        template=template,
        hinted=hinted,
    )
    finished: dict[int, list[Trajectory]] = {}

    def keep(index: int, episode: Episode) -> None:
        finished[index] = episode.build_branches(
            facts,
            trajectory_id=trajectory_ids[index],
            policy_version=policy_version,
            model_digest=model_digest,
        )
        if progress is not None:
            progress(len(finished), len(tasks))

    run.play(tasks, trajectory_ids, openings or [()] * len(tasks), keep)
    return [branch for index in range(len(tasks)) for branch in finished[index]]


def _check(tasks: Sequence[Task], trajectory_ids: Sequence[str], slots: int) -> None:
    if len(trajectory_ids) != len(tasks):
        raise InputError(
            f"there are {len(trajectory_ids)} trajectory ids for {len(tasks)} tasks",
            "Give one id per task.",
        )
    if len(set(trajectory_ids)) != len(tasks):
        raise InputError(
            "two episodes have the same trajectory id", "Their noise would be the same; rename one."
        )
    if slots < 1:
        raise InputError(f"slots is {slots}", "Decode at least one episode at a time.")


@dataclass
class _Seat:
    """An episode in its slot."""

    index: int
    trajectory_id: str
    episode: Episode
    branches: int = 1


class _Run:
    """The loop between decoder and episodes.

    A slot whose world is at work pauses; the others decode. When it goes on is a matter of time
    and reaches no bit of any episode.
    """

    def __init__(
        self,
        backend: Backend,
        make_environment: Callable[[], Environment],
        limits: EpisodeLimits,
        sampling: SamplingSpec,
        *,
        seed: int,
        slots: int,
        template: OwnTemplate | None,
        hinted: bool,
    ) -> None:
        self._hinted = hinted
        self._template = frame_template(backend.tokenizer, make_environment(), template)
        self._codec = backend.tokenizer
        self._make_environment = make_environment
        self._limits = limits
        self._seed = seed
        self._slots = slots
        self._live: dict[int, _Seat] = {}
        self._paused: set[int] = set()
        self._wake = threading.Event()
        self._decoder = Decoder(
            backend,
            EngineShape.of(backend, limits),
            sampling,
            slots=slots,
            stop_texts=make_environment().stops,
            max_new_tokens=limits.max_new_tokens_per_turn,
        )

    def play(
        self,
        tasks: Sequence[Task],
        trajectory_ids: Sequence[str],
        openings: Sequence[Sequence[GeneratedTurn]],
        keep: Callable[[int, Episode], None],
    ) -> None:
        """Play every task, handing each finished episode to ``keep`` with its index."""
        self._free = list(range(self._slots))
        pairs = enumerate(zip(tasks, trajectory_ids, openings, strict=True))
        try:
            more = True
            while more or self._live:
                more = more and self._fill(pairs, keep)
                self._wake.clear()
                for slot in sorted(self._paused):
                    self._go_on(slot, self._live[slot].episode.advance(), keep)
                turns = self._decoder.advance(self._is_due if self._paused else None)
                for turn in turns:
                    self._go_on(turn.slot, self._live[turn.slot].episode.receive(turn), keep)
                if not turns and self._paused:
                    self._wake.wait(max(0.0, self._next_deadline() - time.monotonic()))
        finally:
            for seat in self._live.values():
                seat.episode.close()

    def _fill(
        self,
        pairs: Iterator[tuple[int, tuple[Task, str, Sequence[GeneratedTurn]]]],
        keep: Callable[[int, Episode], None],
    ) -> bool:
        """Start episodes in the free slots; returns whether there may be more of them."""
        # The lowest free slot first: rows in use stay together, so steps stay small.
        while self._free:
            following = next(pairs, None)
            if following is None:
                return False
            index, (task, trajectory_id, opening) = following
            episode = self._new_episode(task)
            if self._admit(self._free[0], episode, trajectory_id, opening):
                branches = episode.transcript.num_branches
                self._live[heappop(self._free)] = _Seat(index, trajectory_id, episode, branches)
            else:
                episode.close()
                keep(index, episode)
        return True

    def _next_deadline(self) -> float:
        return min(self._live[slot].episode.deadline for slot in self._paused)

    def _is_due(self) -> bool:
        """Whether a world has finished something or run out of time."""
        return self._wake.is_set() or time.monotonic() >= self._next_deadline()

    def _new_episode(self, task: Task) -> Episode:
        environment = self._make_environment()
        return Episode(
            environment,
            task,
            self._codec,
            self._limits,
            template=self._template,
            wake=self._wake,
            hinted=self._hinted,
        )

    def _admit(
        self, slot: int, episode: Episode, trajectory_id: str, opening: Sequence[GeneratedTurn]
    ) -> bool:
        """Start an episode in a slot, unless it ends with its prompt or its opening."""
        try:
            token_ids = episode.begin()
            for turn in opening:
                if episode.reason is None:
                    episode.take(turn)
                    token_ids = list(episode.transcript.token_ids)
        except BaseException:
            episode.close()  # it is in no seat yet
            raise
        if episode.reason is not None:
            return False
        self._feed(slot, episode, token_ids, trajectory_id)
        return True

    def _feed(self, slot: int, episode: Episode, token_ids: list[int], trajectory_id: str) -> None:
        """Let a free slot read a prompt, or the history of a new branch, from its first token."""
        self._decoder.admit(
            slot,
            token_ids,
            prefix=len(episode.transcript.system_ids),
            budget=episode.budget,
            stream=stream_key(self._seed, trajectory_id, episode.turn),
        )

    def _go_on(
        self, slot: int, token_ids: list[int] | None, keep: Callable[[int, Episode], None]
    ) -> None:
        """Resume a slot with what its model reads next, let it pause, or free it."""
        self._paused.discard(slot)
        if token_ids is None:
            self._paused.add(slot)
            return
        seat = self._live[slot]
        if seat.episode.reason is not None:
            self._decoder.release(slot)
            del self._live[slot]
            heappush(self._free, slot)
            seat.episode.close()
            keep(seat.index, seat.episode)
            return
        branches = seat.episode.transcript.num_branches
        if branches > seat.branches:
            seat.branches = branches
            self._decoder.release(slot)
            self._feed(slot, seat.episode, token_ids, seat.trajectory_id)
            return
        stream = stream_key(self._seed, seat.trajectory_id, seat.episode.turn)
        self._decoder.resume(slot, token_ids, budget=seat.episode.budget, stream=stream)
