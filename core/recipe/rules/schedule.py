"""Rules about cycles, steps and budgets."""

from collections.abc import Iterator

from core.recipe.problems import Problem, problem
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schedule import BUDGETS, steps_per_cycle


def strict_freshness_is_one_step(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """11: after the first step on a batch, the batch is of an older student."""
    train, steps = recipe.train, steps_per_cycle(recipe)
    if recipe.run.mode == "opd" and train.opd_freshness == "strict" and steps != 1:
        yield problem(
            "train.rollouts_per_cycle",
            f"{train.rollouts_per_cycle} episodes in steps of train.gradient_accumulation_steps "
            f"({train.gradient_accumulation_steps}) are {steps} steps on one batch, and "
            "train.opd_freshness is strict",
            f"Set train.gradient_accumulation_steps: {train.rollouts_per_cycle} "
            "or train.opd_freshness: replay.",
        )


def supervised_run_has_no_warmup(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """12: a supervised run has no on-policy cycles that a warm-up could come before."""
    if recipe.run.mode != "sft":
        return
    if recipe.train.sft_warmup_cycles > 0:
        yield problem(
            "train.sft_warmup_cycles",
            "adds supervised cycles to run.mode sft, which has no others",
            "Raise train.cycles instead.",
        )


def one_cold_start(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A cold start runs on the shared schedule or on its own."""
    if recipe.cold_start is not None and recipe.train.sft_warmup_cycles > 0:
        yield problem(
            "train.sft_warmup_cycles",
            "is a cold start on the shared schedule, and section cold_start is one of its own",
            "Keep one of the two.",
        )


def one_budget(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """14: two budgets would leave open which of them ended the run."""
    given = [key for key in BUDGETS.values() if getattr(recipe.train, key) is not None]
    for key in given[1:]:
        yield problem(
            f"train.{key}",
            f"is a second budget beside train.{given[0]}",
            "Keep one of them.",
        )


def supervised_run_generates_nothing(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A supervised run reads the oracle's tokens: it can spend no tokens of its own."""
    if recipe.run.mode == "sft" and recipe.train.max_generated_tokens is not None:
        yield problem(
            "train.max_generated_tokens",
            "is a budget of the student's own tokens, and run.mode sft samples none",
            "Set train.max_selected_training_tokens instead.",
        )


def oracle_states_generate_nothing(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """The oracle's episodes are no tokens of the student: counting them would end the run early."""
    source = recipe.offline_kd.trajectory_source
    offline = recipe.run.mode == "offline_kd" and source != "frozen_student"
    if offline and recipe.train.max_generated_tokens is not None:
        yield problem(
            "train.max_generated_tokens",
            f"is a budget of the student's own tokens, and offline_kd.trajectory_source {source} "
            "samples none",
            "Set train.max_selected_training_tokens, or "
            "offline_kd.trajectory_source: frozen_student.",
        )


def adopted_student_has_no_cold_start(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A student that another run trained is where this one starts."""
    if recipe.run.start is None:
        return
    present = {
        "train.sft_warmup_cycles": recipe.train.sft_warmup_cycles > 0,
        "cold_start": recipe.cold_start is not None,
    }
    for key in (key for key, given in present.items() if given):
        yield problem(
            key,
            "comes before a fresh student's cycles, and run.start names a trained one",
            f"Leave it out: {key}={'null' if key == 'cold_start' else 0}.",
        )
