"""Where a recipe's tasks come from: a world that generates them, or files of prompts."""

from core.environments.base import Split
from core.errors import RecipeError
from core.recipe.order_spec import TaskOrderSpec
from core.recipe.plugin_specs import plugin_spec
from core.recipe.prompt_specs import PromptSplitSpec
from core.recipe.recipe import Recipe
from core.recipe.schema.environment import EnvironmentSection
from core.recipe.schema.rollout import OwnTemplate
from core.recipe.schema.source import ParquetSource
from core.recipe.specs import EnvironmentSpec, LimitsSpec, TokenizerSpec

PROMPTS = "prompts"
"""Name of the world of single-turn prompts."""


def world(recipe: Recipe) -> EnvironmentSection:
    """Return section ``environment``.

    Raises:
        RecipeError: The recipe has none; one that was loaded has it, or prompts from files.
    """
    if recipe.environment is None:
        raise RecipeError(
            "environment: is required and missing",
            "Add it, or set source.kind: verl_parquet to read prompts from files.",
        )
    return recipe.environment


def prompt_source(recipe: Recipe) -> ParquetSource | None:
    """Return the files of prompts, or None where a world generates tasks."""
    return recipe.source if isinstance(recipe.source, ParquetSource) else None


def world_name(recipe: Recipe) -> str:
    """Return the name of the world."""
    return PROMPTS if prompt_source(recipe) else world(recipe).name


def world_words(recipe: Recipe) -> str:
    """Return the world as a title names it."""
    if prompt_source(recipe):
        return "prompts from files"
    return f"{world(recipe).name} {world(recipe).difficulty}"


def has_demonstrations(recipe: Recipe) -> bool:
    """Return whether there are oracle traces to learn from."""
    source = prompt_source(recipe)
    return source is None or source.demonstration_key is not None


def environment_spec(recipe: Recipe) -> EnvironmentSpec:
    """Return the world with its parameters."""
    source = prompt_source(recipe)
    if source is None:
        section = world(recipe)
        plugin = plugin_spec(section.plugin)
        return EnvironmentSpec(name=section.name, params=section.params, plugin=plugin)
    params = {"answer_check": source.answer_check, "answer_marker": source.answer_marker}
    return EnvironmentSpec(name=PROMPTS, params=params)


def split_size(recipe: Recipe, split: Split) -> int | None:
    """Return the number of tasks of a split; None where only reading its files can tell."""
    if prompt_source(recipe):
        return None
    sizes = world(recipe)
    return {"train": sizes.train_tasks, "eval": sizes.eval_tasks, "test": sizes.test_tasks}[split]


def single_turn_limits(source: ParquetSource) -> LimitsSpec:
    """Return when an episode of one response ends."""
    return LimitsSpec(
        max_turns=1,
        max_new_tokens_per_turn=source.max_response_length,
        max_total_tokens=source.max_prompt_length + source.max_response_length,
        max_parse_errors=1,
        max_repeated_calls=1,
    )


def task_order_spec(recipe: Recipe) -> TaskOrderSpec | None:
    """Return the order of prompts from files; None for the run seed's order of a world's tasks."""
    source = prompt_source(recipe)
    if source is None:
        return None
    return TaskOrderSpec(seed=source.seed if source.shuffle else None)


def prompt_split_spec(
    source: ParquetSource,
    split: Split,
    tokenizer: TokenizerSpec,
    template: OwnTemplate | None = None,
) -> PromptSplitSpec:
    """Return what the tasks of one split of files depend on.

    Args:
        source: The files and how they are read.
        split: ``train`` or ``eval``.
        tokenizer: The student's.
        template: Use of the tokenizer's own template; None is ChatML.
    """
    train = split == "train"
    taught = train and source.demonstration_key is not None
    return PromptSplitSpec(
        split="train" if train else "eval",
        files=source.train_files if train else source.val_files,
        tokenizer=tokenizer,
        prompt_key=source.prompt_key,
        allow_plain_string_prompts=source.allow_plain_string_prompts,
        system_prompt=source.system_prompt,
        max_prompt_length=source.max_prompt_length,
        max_response_length=source.max_response_length if taught else None,
        truncation=source.truncation,
        filter_overlong_prompts=source.filter_overlong_prompts,
        answer_key=source.answer_key,
        answer_marker=source.answer_marker,
        answer_check=source.answer_check,
        demonstration_key=source.demonstration_key if train else None,
        privileged_key=source.privileged_key if train else None,
        overlap=None if train else source.overlap,
        template=template,
    )
