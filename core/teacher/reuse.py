"""What one scoring step has from the cache, and what it leaves there."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from core.errors import CacheCorruptionError, StoreError
from core.models.backend import Backend
from core.recipe.runtime import Runtime
from core.recipe.specs import ScoreSpec
from core.teacher.addresses import Scope, addresses
from core.teacher.independence import measured
from core.teacher.physical import Asked, Columns
from core.teacher.target_cache import TargetCache

logger = logging.getLogger(__name__)


@dataclass
class Tally:
    """What one step had from the cache."""

    reused_positions: int = 0
    """Positions that were served."""
    computed_positions: int = 0
    """Positions that the teacher was asked about."""
    forwarded_trajectories: int = 0
    """Trajectories that the teacher read."""


@dataclass
class Reuse:
    """The cache as one step of one teacher sees it; without a cache, nothing is ever found.

    A damaged file is reported, forgotten and computed again; a directory that cannot be used is
    reported and left alone. Neither stops the step: the cache holds nothing that is not computable.
    """

    cache: TargetCache | None
    teacher: Backend
    spec: ScoreSpec
    runtime: Runtime
    teacher_digest: str
    tally: Tally
    _names: list[list[bytes]] = field(default_factory=list)
    _served: set[str] = field(default_factory=set)

    def recall(self, asked: Sequence[Asked]) -> list[Columns | None]:
        """Return the columns of trajectories whose every position is known, None for the others."""
        known: list[Columns | None] = [None] * len(asked)
        if self.cache is not None:
            self._names = [self._addresses(one) for one in asked]
            known = self._found(self.cache) or known
        for one, columns in zip(asked, known, strict=True):
            if columns is not None:
                self.tally.reused_positions += len(one.positions)
            elif one.positions:
                self.tally.computed_positions += len(one.positions)
                self.tally.forwarded_trajectories += 1
        return known

    def keep(self, computed: Sequence[tuple[int, Columns]]) -> None:
        """Leave what was computed: index of the trajectory, columns."""
        if self.cache is None:
            return
        episodes = [(self._names[i], columns) for i, columns in computed if self._names[i]]
        try:
            self.cache.publish(
                self._scope(),
                episodes,
                hits=self.tally.reused_positions,
                misses=self.tally.computed_positions,
                served=self._served,
                max_bytes=self.runtime.cache_max_bytes,
                entries_per_shard=self.runtime.cache_entries_per_shard,
            )
        except StoreError as error:
            logger.warning("teacher targets are not kept: %s", error.message)

    def _found(self, cache: TargetCache) -> list[Columns | None] | None:
        while True:
            try:
                known, self._served = cache.find(self._scope(), self._names)
            except CacheCorruptionError as error:
                if not self._discarded(cache, error):
                    return None
            except StoreError as error:
                self._give_up(error)
                return None
            else:
                return known

    def _discarded(self, cache: TargetCache, damage: CacheCorruptionError) -> bool:
        try:
            if cache.discard(damage.file):
                logger.warning("%s: its targets are computed again", damage.message)
        except StoreError as error:
            logger.warning("%s", damage.message)
            self._give_up(error)
            return False
        return True

    def _give_up(self, error: StoreError) -> None:
        logger.warning("no teacher target is reused: %s", error.message)
        self.cache = None

    def _addresses(self, asked: Asked) -> list[bytes]:
        """Name the positions of a trajectory; no names where its bits depend on company."""
        finding = measured(self.teacher, asked.shape, self.spec)
        if not finding.independent:
            return []
        shape = asked.shape
        sizes = f"{shape.rows} {shape.width} {shape.piece} {finding.fingerprint}"
        ids = asked.target_ids if self.spec.loss_mode == "verl_pg_k1" else None
        salt = f"{self._scope().digest} {sizes}"
        return addresses(salt, asked.token_ids, asked.positions, ids)

    def _scope(self) -> Scope:
        teacher, spec = self.teacher, self.spec
        cuda = teacher.device.type == "cuda"
        device = f"cuda:{torch.cuda.get_device_name(teacher.device)}" if cuda else "cpu"
        return Scope(
            teacher_digest=self.teacher_digest,
            tokenizer_digest=teacher.tokenizer.digest,
            mode=spec.loss_mode,
            top_k=spec.top_k,
            temperature=spec.temperature,
            vocab_size=teacher.vocab_size,
            dtype=str(teacher.dtype).removeprefix("torch."),
            device=device,
            threads=torch.get_num_threads(),
            torch=f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}",
        )
