"""Cross-entropy on oracle traces: the cold start, ``run.mode: sft``, and the toy teacher's fit."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from core.errors import InputError
from core.models.backend import Backend
from core.recipe.runtime import Runtime
from core.recipe.specs import SelectionSpec, ToyFitSpec
from core.recipe.training_specs import ColdStartSpec, OptimizerSpec, ScheduleSpec
from core.selection.selectors import OwnRule, select_positions
from core.training.budget import Meter
from core.training.course import Course, SupervisedPlan, SupervisedResult
from core.training.episode_groups import episode_groups
from core.training.group import Example, clear_gradients
from core.training.optimizer import NO_MOMENTS
from core.training.progress import Progress
from core.training.state import StudentState
from core.trajectory.alignment import align
from core.trajectory.trajectory import Trajectory

TOY_FIT_WARMUP_SHARE = 0.05
TOY_FIT_EPS = 1e-8
TOY_FIT_MAX_GRAD_NORM = 1.0


def cold_start_plan(spec: ColdStartSpec) -> SupervisedPlan:
    """Return the plan of a cold start."""
    return SupervisedPlan(
        cycles=spec.cycles,
        rollouts_per_cycle=spec.rollouts_per_cycle,
        group_size=spec.gradient_accumulation_steps,
        order_seed=spec.seed,
        optimizer=spec.optimizer,
        schedule=spec.schedule,
        aggregation=spec.aggregation,
        demonstrations=spec.demonstrations,
    )


def toy_fit_plan(spec: ToyFitSpec) -> SupervisedPlan:
    """Return the plan of a toy teacher's fit: 5 % warm-up, then cosine to 0."""
    return SupervisedPlan(
        cycles=spec.steps,
        rollouts_per_cycle=spec.batch_size,
        group_size=spec.batch_size,
        order_seed=spec.seed,
        optimizer=OptimizerSpec(
            name="adamw",
            weight_decay=0.0,
            betas=spec.betas,
            eps=TOY_FIT_EPS,
            max_grad_norm=TOY_FIT_MAX_GRAD_NORM,
        ),
        schedule=ScheduleSpec(
            base=spec.learning_rate,
            kind="cosine",
            warmup_steps=round(TOY_FIT_WARMUP_SHARE * spec.steps),
            total_steps=spec.steps,
            first_step=0,
        ),
        aggregation="native_per_trajectory",
    )


def fit(
    backend: Backend,
    state: StudentState,
    examples: Sequence[Example],
    plan: SupervisedPlan,
    runtime: Runtime,
    meter: Meter | None = None,
    progress: Progress | None = None,
) -> SupervisedResult:
    """Train on traces in a shuffled order that starts over when it ends.

    Args:
        backend: The model; it is left with the trained weights.
        state: Where training starts; it is not changed.
        examples: Traces with the positions that are trained; the branches of a trace follow one
            another, are drawn together and count as one.
        plan: Order, optimizer and learning rate.
        runtime: Physical sizes.
        meter: The run's budget: the step that reaches it is cut to fit and is the last.
        progress: Where states are kept on the way, and the newest is gone on from.

    Returns:
        The state after all steps, with the optimizer's memory, and a row per step. Groups without
        a weighted position take no step.

    Raises:
        InputError: There are no traces, or none has a position to train.
        NumericsError: A step was refused; the model holds ``state`` again.
    """
    if not any(any(example.weights) for example in examples):
        raise InputError(
            f"none of {len(examples)} oracle traces has a position to train",
            "Check environment.train_tasks and the selection.",
        )
    traces = episode_groups(examples, 1)
    order = task_order(
        len(traces), plan.order_seed, state.counters.task_cursor, plan.demonstrations
    )
    course = Course(backend, state, plan, runtime, meter, progress)
    try:
        for cycle, group in islice(groups(order, plan), course.groups, None):
            if meter is not None and meter.is_spent:
                break
            course.take(cycle, len(group), [examples[i] for trace in group for i in traces[trace]])
    except BaseException:
        clear_gradients(backend)
        backend.load_trainable(state.tensors)
        raise
    return course.result()


def examples_of(
    trajectories: Sequence[Trajectory],
    selection: SelectionSpec | None = None,
    seed: int = 0,
    own_rule: OwnRule | None = None,
) -> list[Example]:
    """Return traces with the positions that are trained.

    Args:
        trajectories: Oracle traces.
        selection: Which of the assistant's tokens count; None trains all with weight 1.
        seed: Run seed, for selectors that sample.
        own_rule: What a plug-in's selector is; None for one that is built in.
    """
    return [_example(trajectory, selection, seed, own_rule) for trajectory in trajectories]


def _example(
    trajectory: Trajectory, selection: SelectionSpec | None, seed: int, own_rule: OwnRule | None
) -> Example:
    positions = trajectory.target_positions()
    weights = [1.0] * len(positions)
    if selection is not None:
        chosen = select_positions(trajectory, selection, seed, own_rule)
        positions, weights = list(chosen.positions), list(chosen.weights)
    aligned = align(trajectory, positions, weights)
    return Example(
        trajectory_id=trajectory.trajectory_id,
        token_ids=trajectory.token_ids,
        prediction_positions=aligned.student_prediction_positions,
        target_ids=aligned.target_token_ids,
        weights=aligned.token_weights,
        span_types=aligned.span_types,
        is_whole=trajectory.is_whole,
    )


def weights_only(state: StudentState) -> StudentState:
    """Return a state that hands over weights: no optimizer memory, schedule and order at 0."""
    counters = replace(state.counters, optimizer_step=0, task_cursor=0, cycle=0)
    return StudentState(tensors=state.tensors, moments=NO_MOMENTS, counters=counters)


def task_order(
    count: int, seed: int, cursor: int = 0, distinct: int | None = None
) -> Iterator[int]:
    """Yield task indices without end: one shuffled order, over and over.

    Args:
        count: Number of tasks, at least 1.
        seed: Run seed; the order is ``random.Random(seed ^ 0x5EED).shuffle(range(count))``.
        cursor: Tasks that were used before.
        distinct: Start over after this many; None after all.
    """
    order = list(range(count))
    random.Random(seed ^ 0x5EED).shuffle(order)
    order = order[:distinct]
    while True:
        yield order[cursor % len(order)]
        cursor += 1


def groups(order: Iterator[int], plan: SupervisedPlan) -> Iterator[tuple[int, list[int]]]:
    """Yield the cycle and the trace indices of each optimizer step."""
    for cycle in range(plan.cycles):
        taken = list(islice(order, plan.rollouts_per_cycle))
        for start in range(0, len(taken), plan.group_size):
            yield cycle, taken[start : start + plan.group_size]
