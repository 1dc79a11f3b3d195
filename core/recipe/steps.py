"""What each step needs to know of a recipe: pure functions from ``Recipe`` to a spec."""

from core.environments.base import Split
from core.recipe.dataset_spec import WindowSpec
from core.recipe.model_steps import reference_spec, tokenizer_spec
from core.recipe.objective import (
    HANDED_OVER,
    HIDDEN_STATES,
    numbers,
    objective_name,
    objective_words,
    run_kind,
    teacher_temperature,
)
from core.recipe.plugin_specs import named_plugin_spec
from core.recipe.recipe import Recipe
from core.recipe.report_spec import ReportSpec
from core.recipe.schedule import (
    budget_spec,
    cold_start_rollouts,
    own_schedule,
    shared_cold_start_cycles,
    shared_schedule,
    steps_per_cycle,
)
from core.recipe.schema.models import Model
from core.recipe.sources import (
    environment_spec,
    prompt_source,
    single_turn_limits,
    split_size,
    task_order_spec,
    world,
    world_words,
)
from core.recipe.specs import (
    EvaluationSpec,
    LimitsSpec,
    RolloutSpec,
    SamplingSpec,
    ScoreSpec,
    SelectionSpec,
    SplitSpec,
    TracesSpec,
)
from core.recipe.training_specs import ColdStartSpec, OptimizerSpec, StopSpec, UpdateSpec

SELECTORS_WITH_RATIO = ("uniform_ratio", "uniform_budget", "hybrid", "plugin")


def split_spec(recipe: Recipe, split: Split) -> SplitSpec:
    """Return what the tasks of one split depend on; splits are drawn in order, each anew."""
    section = world(recipe)
    return SplitSpec(
        split=split,
        environment=environment_spec(recipe),
        difficulty=section.difficulty,
        split_seed=section.split_seed,
        train=section.train_tasks,
        eval=section.eval_tasks if split != "train" else None,
        test=section.test_tasks if split == "test" else None,
    )


def traces_spec(recipe: Recipe, reader: Model | None = None) -> TracesSpec:
    """Return what the oracle's transcripts depend on, besides the tasks; the student reads them."""
    return TracesSpec(
        environment=environment_spec(recipe),
        tokenizer=tokenizer_spec(recipe, reader or recipe.models.student),
        split="train",
        max_turns=recipe.rollout.max_turns,
        template=recipe.rollout.own_template,
    )


def selection_spec(recipe: Recipe) -> SelectionSpec:
    """Return which tokens count for the teacher."""
    selection = recipe.selection
    return SelectionSpec(
        selector=selection.selector,
        ratio=selection.ratio if selection.selector in SELECTORS_WITH_RATIO else 1.0,
        max_positions_per_trajectory=selection.max_positions_per_trajectory,
        critical_weight=selection.critical_weight,
        other_weight=selection.other_weight,
        skip_first_tokens=selection.skip_first_tokens or None,
        plugin=named_plugin_spec(selection.plugin),
    )


def optimizer_spec(recipe: Recipe) -> OptimizerSpec:
    """Return the optimizer, which all phases share."""
    train = recipe.train
    return OptimizerSpec(
        name=train.optimizer,
        weight_decay=train.weight_decay,
        betas=(train.adam_beta1, train.adam_beta2),
        eps=train.adam_eps,
        max_grad_norm=train.max_grad_norm,
    )


def cold_start_spec(recipe: Recipe) -> ColdStartSpec | None:
    """Return the supervised training before the first on-policy cycle, or None if there is none."""
    own = recipe.cold_start
    shared = shared_cold_start_cycles(recipe)
    if own is None and shared == 0:
        return None
    return ColdStartSpec(
        cycles=own.cycles if own else shared,
        rollouts_per_cycle=cold_start_rollouts(recipe),
        gradient_accumulation_steps=recipe.train.gradient_accumulation_steps,
        optimizer=optimizer_spec(recipe),
        schedule=own_schedule(recipe, own) if own else shared_schedule(recipe, 0),
        # Demonstrations are of one mind about how a turn begins, and it must be learned.
        selection=selection_spec(recipe).model_copy(update={"skip_first_tokens": None}),
        aggregation=recipe.loss.aggregation,
        demonstrations=own.demonstrations if own else None,
        carries_optimizer=own is None,
        seed=recipe.run.seed,
        budget=budget_spec(recipe) if recipe.run.mode == "sft" and own is None else None,
    )


def continued_spec(recipe: Recipe) -> ColdStartSpec | None:
    """Return the supervised training that goes on after a cold start of its own, or None.

    It runs on the schedule of section ``train`` and on the same demonstrations.
    """
    cold = cold_start_spec(recipe)
    if recipe.run.mode != "sft" or recipe.cold_start is None or cold is None:
        return None
    if recipe.train.cycles == 0:
        return None
    changes = {
        "cycles": recipe.train.cycles,
        "rollouts_per_cycle": recipe.train.rollouts_per_cycle,
        "schedule": shared_schedule(recipe, 0),
        "carries_optimizer": True,
        "budget": budget_spec(recipe),
    }
    return cold.model_copy(update=changes)


def limits_spec(recipe: Recipe, max_turns: int | None = None) -> LimitsSpec:
    """Return when an episode ends; ``max_turns`` replaces the recipe's."""
    rollout, source = recipe.rollout, prompt_source(recipe)
    if source is not None:
        return single_turn_limits(source)
    return LimitsSpec(
        max_turns=max_turns or rollout.max_turns,
        max_new_tokens_per_turn=rollout.max_new_tokens_per_turn,
        max_total_tokens=rollout.max_total_tokens,
        max_parse_errors=rollout.max_parse_errors,
        max_repeated_calls=rollout.max_repeated_calls,
    )


def sampling_spec(recipe: Recipe, temperature: float) -> SamplingSpec:
    """Return how tokens are drawn at a temperature; at 0 truncation means nothing."""
    rollout = recipe.rollout
    if temperature == 0:
        return SamplingSpec(temperature=0.0, top_p=1.0, top_k=0)
    return SamplingSpec(temperature=temperature, top_p=rollout.top_p, top_k=rollout.top_k)


def rollout_spec(recipe: Recipe, cycle: int) -> RolloutSpec:
    """Return what the episodes of a cycle (0, 1, …) depend on, besides tasks and student."""
    rollouts, passed_over = recipe.train.rollouts_per_cycle, recipe.train.first_task or 0
    return RolloutSpec(
        environment=environment_spec(recipe),
        limits=limits_spec(recipe),
        sampling=sampling_spec(recipe, recipe.rollout.temperature),
        rollouts=rollouts,
        cycle=cycle,
        task_cursor=passed_over + rollouts * (shared_cold_start_cycles(recipe) + cycle),
        order=task_order_spec(recipe),
        run_seed=recipe.run.seed,
        template=recipe.rollout.own_template,
    )


def score_spec(recipe: Recipe) -> ScoreSpec:
    """Return what the teacher's targets depend on, besides its weights and the episodes."""
    loss, handed_over = recipe.loss, HANDED_OVER[recipe.loss.mode]
    privileged = recipe.models.teacher.mode == "privileged_context"
    plugin = named_plugin_spec(recipe.models.teacher.plugin)
    own_tokenizer = loss.cross_tokenizer or plugin is not None
    return ScoreSpec(
        environment=environment_spec(recipe) if privileged else None,
        selection=selection_spec(recipe),
        loss_mode=handed_over,
        top_k=loss.top_k if handed_over == "bucketed_topk_tail" else None,
        temperature=None if handed_over in HIDDEN_STATES else teacher_temperature(loss),
        teacher_mode=recipe.models.teacher.mode,
        run_seed=recipe.run.seed,
        student_tokenizer=tokenizer_spec(recipe, recipe.models.student) if own_tokenizer else None,
        plugin=plugin,
        template=recipe.rollout.own_template if privileged else None,
    )


def stop_spec(recipe: Recipe) -> StopSpec | None:
    """Return when the run ends early, or None where it never does."""
    train, bounds = recipe.train, (recipe.train.stop_below_entropy, recipe.train.stop_below_success)
    if recipe.run.mode == "offline_kd" or bounds == (None, None):
        return None
    return StopSpec(
        min_entropy=train.stop_below_entropy,
        min_success=train.stop_below_success,
        after_cycles=train.stop_after_cycles,
    )


def update_spec(recipe: Recipe, cycle: int) -> UpdateSpec:
    """Return what the update of a cycle (0, 1, …) depends on, besides its parents."""
    loss, rollouts = recipe.loss, recipe.train.rollouts_per_cycle
    offline = recipe.run.mode == "offline_kd"
    first_cycle = shared_cold_start_cycles(recipe)
    return UpdateSpec(
        loss_mode=loss.mode,
        divergence=objective_name(loss),
        temperature=loss.temperature,
        scale_by_temperature_squared=loss.scale_by_temperature_squared,
        **numbers(loss),
        nll_weight=loss.sampled_token_nll_weight,
        aggregation=loss.aggregation,
        optimizer=optimizer_spec(recipe),
        schedule=shared_schedule(recipe, steps_per_cycle(recipe) * (first_cycle + cycle)),
        gradient_accumulation_steps=recipe.train.gradient_accumulation_steps,
        freshness="frozen" if offline else recipe.train.opd_freshness,
        cycle=cycle,
        run_seed=recipe.run.seed,
        stop=stop_spec(recipe),
        budget=budget_spec(recipe),
        window=WindowSpec(first=rollouts * cycle, episodes=rollouts) if offline else None,
        reference=reference_spec(recipe),
    )


def evaluation_spec(recipe: Recipe) -> EvaluationSpec | None:
    """Return what a measurement depends on, besides the student; None where it is switched off."""
    evaluation = recipe.eval
    if not evaluation.enabled:
        return None
    size = split_size(recipe, evaluation.split)
    return EvaluationSpec(
        environment=environment_spec(recipe),
        limits=limits_spec(recipe, evaluation.max_turns),
        sampling=sampling_spec(recipe, evaluation.temperature),
        split=evaluation.split,
        task_offset=evaluation.task_offset,
        tasks=evaluation.tasks or (size - evaluation.task_offset if size is not None else None),
        seed=evaluation.seed if evaluation.temperature > 0 else 0,
        samples_per_task=evaluation.samples_per_task if evaluation.samples_per_task > 1 else None,
        template=recipe.rollout.own_template,
    )


def report_spec(recipe: Recipe) -> ReportSpec | None:
    """Return what the report shows; None where it is switched off."""
    report = recipe.report
    if not report.enabled:
        return None
    return ReportSpec(
        title=f"{run_kind(recipe)} on {world_words(recipe)}",
        mode=run_kind(recipe),
        objective=objective_words(recipe),
        seed=recipe.run.seed,
        recipe=recipe.model_dump(mode="json"),
        max_trajectories=report.max_trajectories,
        max_tokens_per_trajectory=report.max_tokens_per_trajectory,
    )
