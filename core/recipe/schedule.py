"""How many cycles and optimizer steps a recipe takes, and on which learning-rate schedule.

Two cold starts exist. A ``cold_start`` section has its own schedule and hands over weights alone.
``train.sft_warmup_cycles`` runs on the schedule, the optimizer and the task order that the
on-policy cycles continue. ``run.mode: sft`` is the second kind with no on-policy cycle after it.
"""

from math import ceil

from core.recipe.recipe import Recipe
from core.recipe.schema.cold_start import ColdStart
from core.recipe.training_specs import BudgetAxis, BudgetSpec, ScheduleSpec

BUDGETS: dict[BudgetAxis, str] = {
    "selected_training_tokens": "max_selected_training_tokens",
    "generated_tokens": "max_generated_tokens",
    "wall_time": "max_wall_seconds",
}
"""Key of section ``train`` that limits each axis."""


def num_cycles(recipe: Recipe) -> int:
    """Return the number of on-policy cycles: none in a supervised run."""
    return 0 if recipe.run.mode == "sft" else recipe.train.cycles


def shared_cold_start_cycles(recipe: Recipe) -> int:
    """Return the supervised cycles that share the schedule of the on-policy ones."""
    return recipe.train.cycles if recipe.run.mode == "sft" else recipe.train.sft_warmup_cycles


def steps_per_cycle(recipe: Recipe) -> int:
    """Return the optimizer steps of one cycle: rollouts over accumulation, rounded up."""
    return ceil(recipe.train.rollouts_per_cycle / recipe.train.gradient_accumulation_steps)


def total_steps(recipe: Recipe) -> int:
    """Return the optimizer steps of the whole shared schedule."""
    return steps_per_cycle(recipe) * (shared_cold_start_cycles(recipe) + num_cycles(recipe))


def shared_schedule(recipe: Recipe, first_step: int) -> ScheduleSpec:
    """Return the schedule of section ``train`` from ``first_step`` on."""
    return ScheduleSpec(
        base=recipe.train.learning_rate,
        kind=recipe.train.lr_schedule,
        warmup_steps=recipe.train.warmup_steps,
        total_steps=total_steps(recipe),
        first_step=first_step,
    )


def cold_start_rollouts(recipe: Recipe) -> int:
    """Return the oracle traces of one supervised cycle."""
    own = recipe.cold_start
    return (own.rollouts_per_cycle if own else None) or recipe.train.rollouts_per_cycle


def own_schedule(recipe: Recipe, own: ColdStart) -> ScheduleSpec:
    """Return the schedule of section ``cold_start``."""
    steps = ceil(cold_start_rollouts(recipe) / recipe.train.gradient_accumulation_steps)
    return ScheduleSpec(
        base=own.learning_rate,
        kind=own.lr_schedule,
        warmup_steps=own.warmup_steps,
        total_steps=own.cycles * steps,
        first_step=0,
    )


def budget_spec(recipe: Recipe) -> BudgetSpec | None:
    """Return what ends the run before its last cycle once it is spent, or None."""
    for axis, key in BUDGETS.items():
        limit = getattr(recipe.train, key)
        if limit is not None:
            return BudgetSpec(axis=axis, limit=limit)
    return None
