"""Many episodes through one decoder: a slot whose episode ends takes the next task at once."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from core.environments.base import Environment, Task
from core.environments.protocol import STOP_STRINGS
from core.errors import InputError
from core.models.backend import Backend
from core.rollout.decoder import Decoder, GeneratedTurn
from core.rollout.episode import Episode
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.noise import stream_key
from core.rollout.shape import EngineShape
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

    Returns:
        One trajectory per task, in the order of ``tasks``.

    Raises:
        InputError: Episodes may outgrow the model's context, the ids do not fit the tasks, or
            ``slots`` is below 1.
        NumericsError: The model's logits are not finite.
    """
    _check(tasks, trajectory_ids, slots)
    facts = {
        "source": "policy",
        "seed": seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
    }
    used = max(1, min(slots, backend.physical_rows, len(tasks)))
    run = _Run(backend, make_environment, limits, sampling, seed=seed, slots=used)
    finished: dict[int, Trajectory] = {}

    def keep(index: int, episode: Episode) -> None:
        finished[index] = episode.build(
            facts,
            trajectory_id=trajectory_ids[index],
            policy_version=policy_version,
            model_digest=model_digest,
        )
        if progress is not None:
            progress(len(finished), len(tasks))

    run.play(tasks, trajectory_ids, keep)
    return [finished[index] for index in range(len(tasks))]


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


class _Run:
    """The loop between decoder and episodes."""

    def __init__(
        self,
        backend: Backend,
        make_environment: Callable[[], Environment],
        limits: EpisodeLimits,
        sampling: SamplingSpec,
        *,
        seed: int,
        slots: int,
    ) -> None:
        self._codec = backend.tokenizer
        self._make_environment = make_environment
        self._limits = limits
        self._seed = seed
        self._slots = slots
        self._decoder = Decoder(
            backend,
            EngineShape.of(backend, limits),
            sampling,
            slots=slots,
            stop_texts=STOP_STRINGS,
            max_new_tokens=limits.max_new_tokens_per_turn,
        )

    def play(
        self,
        tasks: Sequence[Task],
        trajectory_ids: Sequence[str],
        keep: Callable[[int, Episode], None],
    ) -> None:
        """Play every task, handing each finished episode to ``keep`` with its index."""
        free = list(range(self._slots))
        live: dict[int, tuple[int, Episode]] = {}
        following = 0
        while live or following < len(tasks):
            # The lowest free slot first: rows in use stay together, so steps stay small.
            while free and following < len(tasks):
                index, following = following, following + 1
                episode = Episode(self._make_environment(), tasks[index], self._codec, self._limits)
                if self._admit(free[0], episode, trajectory_ids[index]):
                    live[heappop(free)] = index, episode
                else:
                    keep(index, episode)
            for turn in self._decoder.advance():
                index, episode = live[turn.slot]
                if self._go_on(episode, turn, trajectory_ids[index]):
                    continue
                keep(index, episode)
                del live[turn.slot]
                heappush(free, turn.slot)

    def _admit(self, slot: int, episode: Episode, trajectory_id: str) -> bool:
        """Start an episode in a slot, unless it ends with its prompt."""
        token_ids = episode.begin()
        if episode.reason is not None:
            return False
        self._decoder.admit(
            slot,
            token_ids,
            prefix=len(episode.transcript.system_ids),
            budget=episode.budget,
            stream=stream_key(self._seed, trajectory_id, 0),
        )
        return True

    def _go_on(self, episode: Episode, turn: GeneratedTurn, trajectory_id: str) -> bool:
        """Give a turn to its episode; resume the slot, or release it where the episode ended."""
        token_ids = episode.take(turn)
        if episode.reason is not None:
            self._decoder.release(turn.slot)
            return False
        stream = stream_key(self._seed, trajectory_id, episode.turn)
        self._decoder.resume(turn.slot, token_ids, budget=episode.budget, stream=stream)
        return True
