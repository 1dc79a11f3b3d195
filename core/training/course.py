"""A supervised fit on its way: what moves from one group of traces to the next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.models.backend import Backend
from core.recipe.runtime import Runtime
from core.recipe.training_specs import OptimizerSpec, ScheduleSpec
from core.seeding import derive_seed
from core.training.budget import Meter
from core.training.group import Example, Objective
from core.training.optimizer import Optimizer
from core.training.progress import Place, Progress, Reached
from core.training.state import StudentState, copy_trainable
from core.training.step import Stepper

COLUMNS = ("prediction_positions", "target_ids", "weights", "span_types")
"""What an example says of each of its positions."""


@dataclass(frozen=True)
class SupervisedPlan:
    """Which traces each optimizer step sees, and how it moves the parameters."""

    cycles: int
    """Passes over ``rollouts_per_cycle`` traces."""
    rollouts_per_cycle: int
    """Traces per cycle."""
    group_size: int
    """Traces per optimizer step; the last group of a cycle may be smaller."""
    order_seed: int
    """Seed of the order of the traces."""
    optimizer: OptimizerSpec
    """Optimizer."""
    schedule: ScheduleSpec
    """Learning rate."""
    aggregation: str
    """How tokens and traces are averaged."""
    demonstrations: int | None = None
    """Different traces, the first of the order; None takes all."""


@dataclass(frozen=True)
class SupervisedResult:
    """The trained state and one metrics row per optimizer step."""

    state: StudentState
    rows: list[dict[str, Any]]
    physical: dict[str, int]
    """Physical sizes of the last step; execution, not content."""


class Course:
    """Takes the steps of a fit; it begins where a killed one was, if that kept something.

    Args:
        backend: The model; its parameters move.
        origin: Where the fit begins.
        plan: Optimizer and learning rate.
        runtime: Physical sizes.
        meter: The run's budget.
        progress: Where states are kept on the way.

    Attributes:
        groups: Groups that are done.
    """

    def __init__(
        self,
        backend: Backend,
        origin: StudentState,
        plan: SupervisedPlan,
        runtime: Runtime,
        meter: Meter | None,
        progress: Progress | None,
    ) -> None:
        reached = progress.last() if progress is not None else None
        state = reached.state if reached is not None else origin
        backend.load_trainable(state.tensors)
        self._backend, self._origin, self._plan = backend, origin, plan
        self._meter, self._progress = meter, progress
        self._optimizer = Optimizer(backend.trainable(), plan.optimizer, state.moments)
        objective = Objective(plan.aggregation)
        seed = derive_seed(plan.order_seed, "dropout", "sft", 0)
        self._stepper = Stepper(backend, self._optimizer, plan.schedule, objective, runtime, seed)
        self._rows: list[dict[str, Any]] = []
        self.groups = self._traces = 0
        if reached is not None:
            self._go_on(reached)

    def _go_on(self, reached: Reached) -> None:
        place = reached.place
        self._rows = list(reached.rows)
        self.groups, self._traces = place.groups, place.traces
        self._stepper.taken, self._stepper.chunk.size = place.steps, place.chunk_size
        if self._meter is not None:
            self._meter.used += place.spent
            self._meter.seconds += place.seconds

    def take(self, cycle: int, traces: int, chosen: list[Example]) -> None:
        """Train on the traces of one group, where a position has a weight."""
        self.groups += 1
        self._traces += traces
        if not any(any(example.weights) for example in chosen):
            return
        if self._meter is not None:
            chosen = affordable(chosen, self._meter)
        _, row = self._stepper.step(chosen, lambda _: None)
        self._rows.append({"phase": "sft", "cycle": cycle, "oracle_ce_loss": row["loss"], **row})
        if self._progress is not None:
            self._progress.note(self._reached)

    def _reached(self) -> Reached:
        meter, stepper = self._meter, self._stepper
        place = Place(
            groups=self.groups,
            traces=self._traces,
            steps=stepper.taken,
            chunk_size=stepper.chunk.size,
            spent=meter.used if meter is not None else 0,
            seconds=meter.elapsed if meter is not None else 0.0,
        )
        state = StudentState(copy_trainable(self._backend), self._optimizer.moments())
        return Reached(state, self._rows, place)

    def result(self) -> SupervisedResult:
        """Return the trained state, with the counters moved on from where the fit began."""
        before, steps = self._origin.counters, self._stepper.taken
        counters = replace(
            before,
            parameter_version=before.parameter_version + steps,
            optimizer_step=before.optimizer_step + steps,
            task_cursor=before.task_cursor + self._traces,
            cycle=before.cycle + self._traces // self._plan.rollouts_per_cycle,
        )
        state = StudentState(copy_trainable(self._backend), self._optimizer.moments(), counters)
        return SupervisedResult(state, self._rows, self._stepper.physical)


def affordable(chosen: Sequence[Example], meter: Meter) -> list[Example]:
    """Spend the budget on a step; of the trace in which it ends, the first positions are left."""
    kept = meter.admit((), [example.prediction_positions for example in chosen])
    return [
        replace(example, **{name: getattr(example, name)[:count] for name in COLUMNS})
        for example, count in zip(chosen, kept, strict=True)
    ]
