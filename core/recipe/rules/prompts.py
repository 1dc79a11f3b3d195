"""Rules about prompts from files: they have no tools, and no oracle or hint but a column's."""

from collections.abc import Iterator

from core.recipe.problems import Problem, problem
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schema.source import ParquetSource
from core.recipe.sources import prompt_source

NAME_DEMONSTRATIONS = "Name the column of responses to learn from in source.demonstration_key"


def parquet_is_single_turn_opd(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """6: prompts from files have no world, no task rewards, and no mode of stored targets."""
    source = prompt_source(recipe)
    if source is None:
        return
    broken = {
        "environment": recipe.environment is not None,
        "run.mode": recipe.run.mode == "offline_kd",
        "source.use_task_rewards": source.use_task_rewards,
    }
    for key in (key for key, conflicts in broken.items() if conflicts):
        yield problem(
            key,
            "cannot be combined with source.kind: verl_parquet",
            f"Leave {key} out or set source.kind: environment.",
        )


def supervision_needs_demonstrations(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """6: a warm-up learns from responses, which rows of prompts have only in a column of theirs."""
    source = prompt_source(recipe)
    if source is None or source.demonstration_key is not None:
        return
    supervised = {
        "run.mode": recipe.run.mode == "sft",
        "train.sft_warmup_cycles": recipe.train.sft_warmup_cycles > 0,
        "cold_start": recipe.cold_start is not None,
        "models.backend": recipe.models.backend == "toy" and recipe.models.teacher.plugin is None,
    }
    for key in (key for key, learns in supervised.items() if learns):
        toy = " or use backend hf: a toy teacher is fitted on demonstrations."
        rest = toy if key == "models.backend" else f" or leave {key} out."
        yield problem(
            key,
            "cannot be combined with source.kind: verl_parquet without demonstrations",
            f"{NAME_DEMONSTRATIONS},{rest}",
        )


def hints_need_a_column(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """6: a privileged teacher reads a column of the files."""
    source = prompt_source(recipe)
    privileged = recipe.models.teacher.mode == "privileged_context"
    if source is not None and privileged and source.privileged_key is None:
        yield problem(
            "models.teacher.mode",
            "cannot be combined with source.kind: verl_parquet without a column of hints",
            "Name it in source.privileged_key, or set models.teacher.mode: standard.",
        )


def prompts_can_be_evaluated(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """What is measured needs files and answers."""
    source = prompt_source(recipe)
    if source is not None and recipe.eval.enabled:
        yield from _unmeasurable(source, recipe.eval.split)


def _unmeasurable(source: ParquetSource, split: str) -> Iterator[Problem]:
    if split == "test":
        hint = "Use eval.split: eval, which is source.val_files."
        yield problem("eval.split", "prompts from files have no test split", hint)
    if split == "eval" and not source.val_files:
        hint = "Name files in source.val_files, or set eval.enabled: false."
        yield problem("source.val_files", "is empty, and eval.split: eval is read from it", hint)
    if source.answer_key is None:
        hint = "Name the column of answers, or set eval.enabled: false."
        yield problem("source.answer_key", "is null, so no success can be measured", hint)
