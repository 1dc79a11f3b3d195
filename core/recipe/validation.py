"""Every rule about combinations of keys. Names, types and bounds are ``structure``'s.

The numbers in the rules' docstrings are those of the seeds' list of rejected combinations; what
a single key may be (1, 8, 14) is in the schema.
"""

from collections.abc import Callable, Iterator

from core.recipe.document import Document
from core.recipe.keys import explain
from core.recipe.problems import Problem, refuse
from core.recipe.recipe import Recipe
from core.recipe.rules import data, models, objective, prompts, schedule
from core.recipe.runtime import Runtime
from core.recipe.structure import validate
from core.recipe.support import unbuilt

Rule = Callable[[Recipe, Runtime], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    data.environment_exists,
    models.head_width_is_even,
    models.quantised_student_needs_lora,
    models.hub_adapter_needs_revision,
    models.minima_need_an_evaluation,
    models.reference_needs_shared_backbone,
    models.reference_names_its_adapter,
    models.shared_backbone_needs_adapters,
    models.shared_backbone_is_one_model,
    models.toy_backend_is_plain,
    models.toy_has_no_template,
    models.episodes_fit_the_toy,
    models.gate_can_be_measured,
    data.plugin_files_are_as_listed,
    data.demonstrations_exist,
    data.gated_world_gives_verdicts,
    prompts.parquet_is_single_turn_opd,
    prompts.supervision_needs_demonstrations,
    prompts.hints_need_a_column,
    prompts.prompts_can_be_evaluated,
    data.targets_belong_to_one_student,
    data.offline_settings_need_offline_mode,
    data.dataset_path_means_persisted,
    objective.jensen_shannon_mixes_both,
    objective.exact_has_no_support,
    objective.exact_is_not_rounded,
    objective.supervised_loss_is_nll,
    objective.distillation_has_a_divergence,
    objective.top_k_forward_kl_is_verls,
    objective.policy_gradient_is_verls,
    objective.other_tokenizers_share_bytes,
    objective.other_tokenizers_are_asked_for,
    objective.gate_belongs_to_its_selector,
    objective.gate_was_frozen,
    objective.rule_belongs_to_its_selector,
    objective.teacher_of_ones_own_gives_logits,
    schedule.strict_freshness_is_one_step,
    schedule.supervised_run_has_no_warmup,
    schedule.one_cold_start,
    schedule.one_budget,
    schedule.supervised_run_generates_nothing,
    schedule.oracle_states_generate_nothing,
    schedule.adopted_student_has_no_cold_start,
    data.episode_exceeds_turn,
    data.evaluation_turns_are_comparable,
    data.evaluation_lies_in_the_split,
    data.repeated_samples_differ,
)


def combinations(recipe: Recipe, runtime: Runtime) -> list[Problem]:
    """Return every problem of a recipe whose keys are sound one by one."""
    return [each for rule in RULES for each in rule(recipe, runtime)]


def missing_world(document: Document) -> Iterator[Problem]:
    """Yield a problem where neither a world nor files of prompts give tasks."""
    path = ("environment",)
    from_files = document.get(("source", "kind"), "environment") != "environment"
    if not from_files and document.get(path) is None:
        yield Problem(path, "is required and missing", f"Add it. {explain('environment')}")


def examine(document: Document) -> tuple[Recipe | None, Runtime | None, list[Problem]]:
    """Judge a document by every key and, where all keys are sound, by every combination.

    Args:
        document: Execution keys in section ``runtime``.
    """
    problems = [*unbuilt(document), *missing_world(document)]
    complete = not any(each.path == ("environment",) for each in problems)
    values = {key: value for key, value in document.values.items() if key != "runtime"}
    recipe, of_recipe = validate(Recipe, values, document)
    settings = document.values.get("runtime", {})
    runtime, of_runtime = validate(Runtime, settings, document, ("runtime",))
    if recipe and runtime and complete:
        problems += combinations(recipe, runtime)
    return recipe, runtime, problems + of_recipe + of_runtime


def check(recipe: Recipe, runtime: Runtime) -> None:
    """Refuse a recipe that was put together in code as the loader refuses one in a file.

    Raises:
        RecipeError: With dotted key, value and what to do.
    """
    document = Document("recipe")
    document.values = {**recipe.model_dump(mode="json"), "runtime": runtime.model_dump(mode="json")}
    _, _, problems = examine(document)
    if problems:
        raise refuse(problems, document)
