"""Rules about worlds, prompts, stored targets and what is evaluated."""

from collections.abc import Iterator

from core.environments.plugin_code import Kind, listed_source
from core.environments.plugins import open_environment
from core.environments.registry import SOURCES, make_environment, names
from core.errors import InputError, PluginError
from core.recipe.plugin_keys import PLUGIN_KEYS, is_at_hand
from core.recipe.problems import Problem, problem
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schema.environment import EnvironmentSection
from core.recipe.schema.offline_kd import OfflineKd
from core.recipe.schema.plugin import Plugin
from core.recipe.sources import environment_spec, split_size

MAX_TURNS_RATIO = 4


def environment_exists(recipe: Recipe, runtime: Runtime) -> Iterator[Problem]:
    """1: the world is in the registry or in its plug-in and accepts its parameters."""
    section, known = recipe.environment, names()
    if section is None:
        return
    if section.plugin is not None:
        yield from _plugin_is_sound(recipe, section, runtime)
        return
    if section.name not in known:
        hint = f"Choose one of {', '.join(known)}."
        yield problem("environment.name", "there is no such environment", hint)
        return
    if "name" in section.params:
        hint = "Name the environment by environment.name."
        yield problem("environment.params.name", "is no parameter", hint)
        return
    try:
        make_environment(section.name, **section.params)
    except InputError as error:
        yield problem("environment.params", error.message, error.hint)


def gated_world_gives_verdicts(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A gate without verdicts lets nothing through, and the run would train on nothing."""
    if recipe.selection.selector != "verifier_gated":
        return
    world = environment_spec(recipe)
    if world.name not in (*names(), *SOURCES):
        return
    try:
        judges = make_environment(world.name, **world.params).judges_policy
    except (InputError, TypeError):  # another rule names what is wrong with the parameters
        return
    if not judges:
        yield problem(
            "selection.selector",
            f"verifier_gated needs verdicts on episodes, and environment {world.name} gives none",
            "Use sqlite_recovery or tool_policy, or another selector.",
        )


def plugin_files_are_as_listed(recipe: Recipe, runtime: Runtime) -> Iterator[Problem]:
    """A file that changed since it was listed is other code, even where the old is in memory."""
    listed: dict[Kind, Plugin | None] = {
        "environment": recipe.environment.plugin if recipe.environment else None,
        "teacher": recipe.models.teacher.plugin,
        "selector": recipe.selection.plugin,
    }
    for kind, plugin in listed.items():
        path = getattr(runtime.plugins, kind)
        if plugin is None or plugin.distribution is not None or path is None:
            continue
        try:
            listed_source(path, plugin.sha256)
        except PluginError as error:
            yield problem(f"{PLUGIN_KEYS[kind]}.sha256", error.message, error.hint)


def _plugin_is_sound(
    recipe: Recipe, environment: EnvironmentSection, runtime: Runtime
) -> Iterator[Problem]:
    path = runtime.plugins.environment
    assert environment.plugin is not None
    if not is_at_hand(environment.plugin, path):
        return  # a recipe may be read without the code that it lists, but not run
    if any(plugin_files_are_as_listed(recipe, runtime)):
        return  # that rule says so
    try:
        open_environment(environment, path)
    except InputError as error:
        yield problem("environment.plugin", error.message, error.hint)


def demonstrations_exist(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """There is one oracle trace per training task."""
    own, tasks = recipe.cold_start, split_size(recipe, "train")
    if own is None or own.demonstrations is None or tasks is None:
        return
    if own.demonstrations > tasks:
        yield problem(
            "cold_start.demonstrations",
            f"is {own.demonstrations}, and environment.train_tasks is {tasks}",
            "Lower it, or leave it out to use every trace.",
        )


def targets_belong_to_one_student(recipe: Recipe, runtime: Runtime) -> Iterator[Problem]:
    """7: on-policy targets are of this very student; an offline data set is of no student."""
    kept = runtime.inherited
    offline = recipe.run.mode == "offline_kd"
    if recipe.run.mode == "opd" and kept.cache_reuse_across_policy_versions:
        yield problem(
            "runtime.inherited.cache_reuse_across_policy_versions",
            "run.mode opd may not train on targets of an older student",
            "Set cache.reuse_across_policy_versions: false.",
        )
    if recipe.run.mode == "opd" and not kept.cache_strict_policy_version:
        yield problem(
            "runtime.inherited.cache_strict_policy_version",
            "run.mode opd trains on targets of the present student only",
            "Set cache.strict_policy_version: true.",
        )
    if offline and not kept.cache_reuse_across_policy_versions:
        yield problem(
            "run.mode",
            "offline_kd replays targets and needs cache.reuse_across_policy_versions: true",
            "Set cache.reuse_across_policy_versions: true.",
        )


def offline_settings_need_offline_mode(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """7: settings of the fixed data set mean nothing in another mode."""
    if recipe.run.mode == "offline_kd":
        return
    for name, value in OfflineKd():
        if getattr(recipe.offline_kd, name) != value:
            yield problem(
                f"offline_kd.{name}",
                f"is read by run.mode offline_kd only, and run.mode is {recipe.run.mode}",
                "Leave section offline_kd out.",
            )


def dataset_path_means_persisted(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """7: a path is given exactly where an existing data set is used."""
    persisted = recipe.offline_kd.trajectory_source == "persisted"
    if persisted != (recipe.offline_kd.dataset_path is not None):
        yield problem(
            "offline_kd.dataset_path",
            "belongs to offline_kd.trajectory_source: persisted, and only to it",
            "Give both or neither.",
        )


def episode_exceeds_turn(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """13: a transcript has room for the prompt beside one turn."""
    total, turn = recipe.rollout.max_total_tokens, recipe.rollout.max_new_tokens_per_turn
    if total <= turn:
        yield problem(
            "rollout.max_total_tokens",
            f"must exceed rollout.max_new_tokens_per_turn ({turn})",
            "Raise the first or lower the second.",
        )


def evaluation_turns_are_comparable(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """13: an evaluation is not of another kind than the training."""
    limit = MAX_TURNS_RATIO * recipe.rollout.max_turns
    if recipe.eval.max_turns is not None and recipe.eval.max_turns > limit:
        yield problem(
            "eval.max_turns",
            f"is more than {MAX_TURNS_RATIO} × rollout.max_turns ({recipe.rollout.max_turns})",
            f"Use at most {limit}.",
        )


def repeated_samples_differ(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """Greedy episodes of one task are one episode."""
    if recipe.eval.samples_per_task > 1 and recipe.eval.temperature == 0:
        yield problem(
            "eval.samples_per_task",
            f"is {recipe.eval.samples_per_task}, and eval.temperature 0 draws one episode only",
            "Set eval.temperature: 1, or leave eval.samples_per_task out.",
        )


def evaluation_lies_in_the_split(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """13: the evaluated slice exists."""
    evaluation, size = recipe.eval, split_size(recipe, recipe.eval.split)
    if size is None:
        return
    last = evaluation.task_offset + (evaluation.tasks or 1)
    if evaluation.enabled and last > size:
        key = "eval.tasks" if evaluation.tasks else "eval.task_offset"
        yield problem(
            key,
            f"tasks {evaluation.task_offset} to {last - 1} (from eval.task_offset) do not all "
            f"exist: environment.{evaluation.split}_tasks is {size}",
            f"Use a slice of the {size} tasks or make more.",
        )
