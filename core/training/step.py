"""One committed optimizer step, and the row that it leaves in the metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import NumericsError
from core.models.backend import Backend
from core.recipe.runtime import Runtime
from core.recipe.training_specs import ScheduleSpec
from core.seeding import derive_seed
from core.training.group import Example, GatherTargets, GroupLoss, Objective, accumulate
from core.training.memory import ChunkSize
from core.training.optimizer import Optimizer
from core.training.schedule import learning_rate


@dataclass
class Stepper:
    """Takes optimizer steps along a schedule.

    Attributes:
        backend: The model; its parameters move.
        optimizer: Its optimizer.
        schedule: Learning rates.
        objective: What is minimised.
        runtime: Physical sizes.
        seed: Seed of the run's dropout; each phase has its own.
        taken: Steps taken so far.
        chunk: Positions projected at once; it shrinks when memory runs out.
        physical: Sizes of the latest step. They are execution, so they go into records, never
            into a metrics row, which is content.
    """

    backend: Backend
    optimizer: Optimizer
    schedule: ScheduleSpec
    objective: Objective
    runtime: Runtime
    seed: int = 0
    taken: int = 0
    chunk: ChunkSize = field(init=False)
    physical: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runtime = self.runtime
        self.chunk = ChunkSize(runtime.chunk_size, runtime.oom_retries, runtime.min_chunk_size)

    def step(
        self, examples: Sequence[Example], gather_targets: GatherTargets
    ) -> tuple[GroupLoss, dict[str, Any]]:
        """Move the parameters once along the gradient of a group.

        Args:
            examples: Trajectories of the group; at least one position has a weight.
            gather_targets: Teacher's side of some of them.

        Returns:
            The group's loss and its metrics row.

        Raises:
            NumericsError: Loss or gradient is not finite; the parameters did not move.
            MemoryExhaustedError: The smallest chunk does not fit.
        """
        schedule = self.schedule
        index = schedule.first_step + self.taken
        rate = learning_rate(
            index, schedule.base, schedule.warmup_steps, schedule.total_steps, schedule.kind
        )
        try:
            group = accumulate(
                self.backend,
                examples,
                gather_targets,
                self.objective,
                self.runtime,
                self.chunk,
                [derive_seed(self.seed, index, row) for row in range(len(examples))],
            )
            norm = self.optimizer.step(rate)
        except NumericsError as error:
            self.optimizer.clear()
            raise NumericsError(f"optimizer step {index}: {error.message}", error.hint) from error
        self.taken += 1
        self.physical = {
            "physical_trajectory_batches": group.num_batches,
            "padded_trajectory_batch_size": group.padded_rows,
            "projection_chunk_size": self.chunk.size,
        }
        return group, self._row(index, rate, norm, examples, group)

    def _row(
        self,
        index: int,
        rate: float,
        norm: float,
        examples: Sequence[Example],
        group: GroupLoss,
    ) -> dict[str, Any]:
        return {
            "step": index,
            "loss": group.loss,
            "divergence_loss": group.mean("divergence"),
            "sampled_token_nll_loss": group.mean("nll"),
            "teacher_entropy_mean": group.mean("teacher_entropy"),
            "objective_diagnostics": group.diagnostics(),
            "loss_by_span_type": loss_by_span_type(examples, group),
            "loss_aggregation": self.objective.aggregation,
            "selected_positions": group.selected_positions,
            "trajectories_in_step": len(examples),
            "grad_norm": norm,
            "lr": rate,
        }


def loss_by_span_type(examples: Sequence[Example], group: GroupLoss) -> dict[str, float]:
    """Return the weighted mean objective of each span type that has a weight, nats."""
    sums: dict[str, list[float]] = {}
    for example, terms, weights in zip(examples, group.terms, group.reduction.weights, strict=True):
        for kind, value, weight in zip(
            example.span_types, terms.objective.tolist(), weights, strict=True
        ):
            if weight > 0:
                entry = sums.setdefault(kind, [0.0, 0.0])
                entry[0] += weight * value
                entry[1] += weight
    return {kind: total / weight for kind, (total, weight) in sorted(sums.items())}
