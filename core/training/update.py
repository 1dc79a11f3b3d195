"""One update: the student moves towards what the teacher said about the student's own episodes.

Nothing that goes in is changed. A new state comes out, or an error and the old weights: so a retry
cannot apply an update twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from core.errors import BackendError
from core.losses.options import ObjectiveOptions
from core.losses.temperature import of_teacher
from core.models.backend import Backend
from core.recipe.objective import HANDED_OVER, HIDDEN_STATES
from core.recipe.runtime import Runtime
from core.recipe.training_specs import UpdateSpec
from core.seeding import derive_seed
from core.teacher.binding import check_binding
from core.teacher.cut import first_positions
from core.teacher.targets import ScoredTargets
from core.training.budget import Meter
from core.training.drift import sampler_drift, sampler_temperature
from core.training.episode_groups import episode_groups
from core.training.freshness import PHASES, check_freshness
from core.training.group import Example, GatherTargets, Objective, clear_gradients
from core.training.guards import check_update
from core.training.optimizer import Optimizer
from core.training.reference import reference_column
from core.training.state import Counters, StudentState, copy_trainable
from core.training.step import Stepper
from core.training.token_analysis import (
    MAX_TRAJECTORIES,
    Favourites,
    analysed_rows,
    favourites,
)
from core.trajectory.trajectory import Trajectory

NUMBERS = tuple(each.name for each in fields(ObjectiveOptions))
"""Numbers of objectives; an update has them under the same names."""


@dataclass(frozen=True)
class UpdateResult:
    """What an update leaves behind."""

    state: StudentState
    """The student after all steps."""
    rows: list[dict[str, Any]]
    """One metrics row per optimizer step."""
    token_rows: list[dict[str, Any]]
    """One row per selected token, for the report."""
    physical: dict[str, int] = field(default_factory=dict)
    """Physical sizes of the last step; execution, not content."""


def update(
    backend: Backend,
    state: StudentState,
    trajectories: Sequence[Trajectory],
    scored: ScoredTargets,
    spec: UpdateSpec,
    runtime: Runtime,
    *,
    teacher: Backend | None = None,
    meter: Meter | None = None,
    reference: Backend | None = None,
) -> UpdateResult:
    """Take one optimizer step per group of ``gradient_accumulation_steps`` episodes.

    The branches of an episode are trajectories of their own and stay in one group.

    Args:
        backend: The student; it is left with the new weights.
        state: Its state; it is not changed.
        trajectories: Its episodes.
        scored: What the teacher said about them, in the same order.
        spec: Objective, optimizer and learning rate.
        runtime: Physical sizes.
        teacher: The model that scored; exact targets need its head.
        meter: The run's budget: positions that it has no room for are not trained on, and no step
            is taken once it is spent.
        reference: A frozen model; the student's distance from it goes into the metrics alone.

    Returns:
        The new state, metrics per step and values per token. Groups without a weighted position
        take no step.

    Raises:
        StalePolicyError: Episodes or targets are of another version, or a fresh batch would take
            more than one step, and freshness is ``strict``.
        AlignmentError: The targets belong to other trajectories or tokens.
        BackendError: The loss mode differs from the targets', or the head is missing.
        NumericsError: Loss or gradient is not finite; the model holds ``state`` again.
        CanaryError: A frozen weight changed, or no trained one did; the same.
    """
    groups = episode_groups(trajectories, spec.gradient_accumulation_steps)
    check_freshness(state, trajectories, scored, spec, len(groups))
    check_targets(scored, spec, teacher)
    if meter is not None:
        check_binding(scored, trajectories)
        scored = first_positions(scored, _admitted(meter, trajectories, scored, groups))
    examples = paired_examples(trajectories, scored)
    backend.load_trainable(state.tensors)
    frozen = backend.frozen_digest()
    optimizer = Optimizer(backend.trainable(), spec.optimizer, state.moments)
    seed = derive_seed(spec.run_seed, "dropout", "opd", spec.cycle)
    stepper = Stepper(backend, optimizer, spec.schedule, objective_of(spec), runtime, seed)
    rows: list[dict[str, Any]] = []
    token_rows: list[dict[str, Any]] = []
    try:
        for indices in groups:
            chosen = [examples[i] for i in indices]
            if not any(any(example.weights) for example in chosen):
                continue
            if rows and meter is not None and meter.counts_seconds and meter.is_spent:
                break
            gather = group_targets(backend, scored, indices, teacher)
            few = chosen[: 0 if rows else MAX_TRAJECTORIES]
            sources = [trajectories[i] for i in indices[: len(few)]]
            found = _favourites(backend, few, gather, spec, runtime, sampler_temperature(sources))
            apart = reference_column(backend, reference, chosen, runtime, stepper.chunk)
            group, row = stepper.step(chosen, gather)
            token_rows += analysed_rows(backend, few, group.terms, found)
            version = state.counters.parameter_version + len(rows)
            row |= sampler_drift(sources, few, found.student_logprobs_N, version)
            rows.append(_labelled(row | apart, spec, trajectories, scored, version + 1))
        check_update(backend, state.tensors, frozen, rows)
    except BaseException:
        clear_gradients(backend)
        backend.load_trainable(state.tensors)
        raise
    counters = _advanced(state.counters, trajectories, scored, rows)
    moments = optimizer.moments() if rows else state.moments
    new = StudentState(copy_trainable(backend), moments, counters)
    return UpdateResult(new, rows, token_rows, stepper.physical)


def _admitted(
    meter: Meter,
    trajectories: Sequence[Trajectory],
    scored: ScoredTargets,
    groups: Sequence[Sequence[int]],
) -> list[int]:
    """Spend the budget; what no step is taken on costs no selected position."""
    trained = {
        i for group in groups if any(any(scored.selected[i].weights) for i in group) for i in group
    }
    positions = [
        entry.prediction_positions if i in trained else []
        for i, entry in enumerate(scored.selected)
    ]
    return meter.admit(trajectories, positions)


def objective_of(spec: UpdateSpec) -> Objective:
    """Return what an update minimises."""
    numbers = {name: getattr(spec, name) for name in NUMBERS}
    options = {name: value for name, value in numbers.items() if value is not None}
    own = {"divergence": spec.divergence, "nll_weight": spec.nll_weight}
    return Objective(spec.aggregation, {**own, **options})


def teacher_temperature(spec: UpdateSpec) -> float:
    """Return what the teacher's logits are divided by."""
    return of_teacher(spec.teacher_temperature, spec.temperature)


def group_targets(
    backend: Backend, scored: ScoredTargets, indices: Sequence[int], teacher: Backend | None
) -> GatherTargets:
    """Return the lookup of a group's targets by the index of its examples."""
    project: Callable | None = teacher.project if teacher is not None else None

    def gather(chosen: Sequence[int]) -> Any:
        return scored.gather([indices[i] for i in chosen], backend.device, project)

    return gather


def paired_examples(trajectories: Sequence[Trajectory], scored: ScoredTargets) -> list[Example]:
    """Return trajectories with the positions that were scored.

    Raises:
        StaleCacheError: The targets belong to another policy version.
        AlignmentError: The targets belong to other trajectories or tokens.
    """
    check_binding(scored, trajectories)
    examples = []
    for trajectory, selected in zip(trajectories, scored.selected, strict=True):
        examples.append(
            Example(
                trajectory_id=trajectory.trajectory_id,
                token_ids=trajectory.token_ids,
                prediction_positions=selected.prediction_positions,
                target_ids=selected.target_ids,
                weights=selected.weights,
                span_types=selected.span_types,
            )
        )
    return examples


def check_targets(scored: ScoredTargets, spec: UpdateSpec, teacher: Backend | None) -> None:
    """Refuse targets that this loss cannot read.

    Raises:
        BackendError: The loss mode or temperature differs, or the teacher's head is missing.
    """
    provenance = scored.provenance
    if provenance.mode != HANDED_OVER[spec.loss_mode]:
        raise BackendError(
            f"the targets are {provenance.mode} and the loss is {spec.loss_mode}",
            "Score again with the loss mode of the update.",
        )
    taken_at, wanted = provenance.temperature, teacher_temperature(spec)
    if taken_at is not None and taken_at != wanted:
        raise BackendError(
            f"the targets were taken at temperature {taken_at}, the loss has {wanted}",
            "Score again with the teacher temperature of the loss.",
        )
    if provenance.mode in HIDDEN_STATES and teacher is None:
        raise BackendError(
            "exact targets are hidden states, and the teacher's head is not loaded",
            "Give the update the teacher that scored them.",
        )


def _favourites(
    backend: Backend,
    few: Sequence[Example],
    gather: GatherTargets,
    spec: UpdateSpec,
    runtime: Runtime,
    sampled_at: float,
) -> Favourites:
    targets = gather(range(len(few))) if few else None
    if targets is None:
        return Favourites([], [], [], [])
    read_at = teacher_temperature(spec)
    return favourites(backend, few, targets, runtime.chunk_size, read_at, sampled_at)


def _labelled(
    row: dict[str, Any],
    spec: UpdateSpec,
    trajectories: Sequence[Trajectory],
    scored: ScoredTargets,
    version: int,
) -> dict[str, Any]:
    return {
        "phase": PHASES[spec.freshness],
        "cycle": spec.cycle,
        **row,
        "sampling_temperature": trajectories[0].metadata.get("temperature"),
        "loss_temperature": spec.temperature,
        "teacher_temperature": teacher_temperature(spec),
        "parameter_version": version,
        "rollout_policy_version": scored.provenance.policy_version,
    }


def _advanced(
    before: Counters,
    trajectories: Sequence[Trajectory],
    scored: ScoredTargets,
    rows: Sequence[dict[str, Any]],
) -> Counters:
    return replace(
        before,
        parameter_version=before.parameter_version + len(rows),
        rollout_policy_version=scored.provenance.policy_version,
        optimizer_step=before.optimizer_step + len(rows),
        task_cursor=before.task_cursor + sum(one.is_whole for one in trajectories),
        cycle=before.cycle + 1,
        selected_tokens_spent=before.selected_tokens_spent
        + sum(row["selected_positions"] for row in rows),
    )
