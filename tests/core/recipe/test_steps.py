import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.recipe import steps
from core.recipe.execution import EXECUTION_KEYS
from core.recipe.keys import recipe_keys
from core.recipe.loading import load_text
from core.recipe.recipe import Recipe
from core.recipe.support import UNBUILT

HF = ("models.backend=hf",)
COLD = ("cold_start.cycles=4", "cold_start.learning_rate=0.01")
EVALUATION = {"evaluation"}
ROLLOUT = {"rollout", "evaluation"}
UPDATE = {"update"}
TRAINING = {"cold_start", "update"}
STATE = {"student", "cold_start", "rollout", "score", "update"}

CHANGES: dict[str, tuple[tuple[str, ...], str, set[str]]] = {
    # key: (overrides on both sides, another value, the specs that it changes)
    "run.mode": ((), "sft", {"cold_start", "rollout", "update"}),
    "run.seed": (COLD, "5", STATE),
    "models.backend": ((), "hf", {"traces", "teacher", "student"}),
    "models.student.model_id": (HF, "x", {"traces", "student"}),
    "models.student.revision": (HF, "x", {"traces", "student"}),
    "models.student.dtype": (HF, "bfloat16", {"student"}),
    "models.student.attn_implementation": (HF, "eager", {"student"}),
    "models.student.toy.hidden_size": ((), "32", {"student"}),
    "models.student.toy.num_layers": ((), "3", {"student"}),
    "models.student.toy.num_heads": ((), "2", {"student"}),
    "models.student.toy.intermediate_size": ((), "64", {"student"}),
    "models.student.toy.max_position_embeddings": ((), "2048", {"student"}),
    "models.student.lora.enabled": (HF, "false", {"student"}),
    "models.student.lora.r": (HF, "4", {"student"}),
    "models.student.lora.alpha": (HF, "4", {"student"}),
    "models.student.lora.dropout": (HF, "0.1", {"student"}),
    "models.student.lora.target_modules": (HF, "[q_proj]", {"student"}),
    "models.student.lora.bias": (HF, "all", {"student"}),
    "models.teacher.model_id": (HF, "x", {"teacher"}),
    "models.teacher.revision": (HF, "x", {"teacher"}),
    "models.teacher.dtype": (HF, "bfloat16", {"teacher"}),
    "models.teacher.attn_implementation": (HF, "eager", {"teacher"}),
    "models.teacher.toy.hidden_size": ((), "32", {"teacher"}),
    "models.teacher.toy.num_layers": ((), "3", {"teacher"}),
    "models.teacher.toy.num_heads": ((), "2", {"teacher"}),
    "models.teacher.toy.intermediate_size": ((), "64", {"teacher"}),
    "models.teacher.toy.max_position_embeddings": ((), "2048", {"teacher"}),
    "models.teacher.mode": ((), "privileged_context", {"score"}),
    "models.teacher.toy_teacher_seed": ((), "5", {"teacher"}),
    "models.teacher.toy_pretrain_steps": ((), "5", {"teacher"}),
    "models.teacher.toy_pretrain_lr": ((), "0.5", {"teacher"}),
    "models.teacher.toy_pretrain_batch_size": ((), "5", {"teacher"}),
    "environment.params": ((), "compact", {"splits", "traces", "rollout", "evaluation"}),
    "environment.train_tasks": ((), "65", {"splits"}),
    "environment.eval_tasks": ((), "33", {"splits", "evaluation"}),
    "environment.test_tasks": ((), "33", {"splits"}),
    "environment.split_seed": ((), "8", {"splits"}),
    "environment.difficulty": ((), "hard", {"splits"}),
    "rollout.max_turns": ((), "5", {"traces", *ROLLOUT}),
    "rollout.max_new_tokens_per_turn": ((), "65", ROLLOUT),
    "rollout.max_total_tokens": ((), "700", ROLLOUT),
    "rollout.temperature": ((), "0.5", {"rollout"}),
    "rollout.top_p": ((), "0.5", {"rollout"}),
    "rollout.top_k": ((), "5", {"rollout"}),
    "rollout.max_parse_errors": ((), "3", ROLLOUT),
    "rollout.max_repeated_calls": ((), "3", ROLLOUT),
    "selection.selector": (COLD, "hybrid", {"cold_start", "score"}),
    "selection.ratio": ((*COLD, "selection.selector=hybrid"), "0.5", {"cold_start", "score"}),
    "selection.max_positions_per_trajectory": (COLD, "5", {"cold_start", "score"}),
    "selection.critical_weight": (COLD, "5", {"cold_start", "score"}),
    "selection.other_weight": (COLD, "5", {"cold_start", "score"}),
    "loss.mode": ((), "exact_full_vocab", {"score", "update"}),
    "loss.aggregation": (COLD, "token-mean", TRAINING),
    "loss.divergence": ((), "forward_kl", UPDATE),
    "loss.temperature": ((), "2", {"score", "update"}),
    "loss.scale_by_temperature_squared": ((), "false", UPDATE),
    "loss.top_k": ((), "5", {"score"}),
    "loss.jsd_beta": (("loss.divergence=jsd",), "0.3", UPDATE),
    "loss.tail_epsilon": ((), "1e-6", UPDATE),
    "loss.sampled_token_nll_weight": ((), "0.5", UPDATE),
    "cold_start.cycles": (COLD, "5", {"cold_start"}),
    "cold_start.rollouts_per_cycle": (COLD, "5", {"cold_start"}),
    "cold_start.learning_rate": (COLD, "0.5", {"cold_start"}),
    "cold_start.lr_schedule": (COLD, "linear", {"cold_start"}),
    "cold_start.warmup_steps": (COLD, "1", {"cold_start"}),
    "train.cycles": ((), "5", UPDATE),
    "train.rollouts_per_cycle": (COLD, "4", {"cold_start", "rollout"}),
    "train.gradient_accumulation_steps": (COLD, "9", {"teacher", *TRAINING}),
    "train.opd_freshness": ((), "replay", UPDATE),
    "train.learning_rate": (COLD, "0.5", UPDATE),
    "train.weight_decay": (COLD, "0.5", TRAINING),
    "train.max_grad_norm": (COLD, "0.5", TRAINING),
    "train.warmup_steps": ((), "1", UPDATE),
    "train.lr_schedule": ((), "cosine", UPDATE),
    "train.adam_beta1": (COLD, "0.5", TRAINING),
    "train.adam_beta2": (COLD, "0.5", TRAINING),
    "train.adam_eps": (COLD, "1e-6", TRAINING),
    "train.sft_warmup_cycles": ((), "1", {"cold_start", "rollout", "update"}),
    "eval.enabled": ((), "false", EVALUATION),
    "eval.tasks": ((), "5", EVALUATION),
    "eval.task_offset": ((), "5", EVALUATION),
    "eval.split": ((), "train", EVALUATION),
    "eval.temperature": ((), "0.5", EVALUATION),
    "eval.max_turns": ((), "5", EVALUATION),
    "eval.seed": (("eval.temperature=1",), "5", EVALUATION),
    "report.enabled": ((), "false", set()),
    "report.max_trajectories": ((), "6", set()),
    "report.max_tokens_per_trajectory": ((), "6", set()),
}

IN_NO_SPEC = {
    "schema_version": "a version of the keys",
    "run.deterministic": "kernels are always deterministic",
    "models.student.prepare_kbit_training": "quantisation is not built",
    "models.teacher.prepare_kbit_training": "quantisation is not built",
    "environment.name": "one environment is built",
    "eval.baseline_enabled": "decides which evaluations a flow asks for",
    "train.eval_every_cycles": "decides which evaluations a flow asks for",
}

EXECUTION_VALUES = {
    "auto": ("memory.strategy", "models.device", "train.trajectory_batch_size"),
    "false": (
        "train.length_bucketing",
        "memory.empty_cache_between_phases",
        "memory.reset_peak_stats_each_cycle",
        "cache.verify_checksums_on_load",
    ),
    "true": (
        "models.student.gradient_checkpointing",
        "rollout.record_logprobs",
        "loss.allow_large_exact",
    ),
    "[a]": ("run.tags",),
    "float16": ("cache.dtype",),
    "x": ("run.output_dir", "run.run_id", "run.name", "run.notes", "cache.dir"),
    "b" * 64: ("run.execution_plan_digest",),
    "null": ("run.profile_identity",),
}
FIXED_BY_A_RULE = ("cache.strict_policy_version", "cache.reuse_across_policy_versions")


def specs(recipe: Recipe) -> dict[str, object]:
    return {
        "splits": steps.splits_spec(recipe),
        "traces": steps.traces_spec(recipe),
        "teacher": steps.teacher_spec(recipe),
        "student": steps.student_spec(recipe),
        "cold_start": steps.cold_start_spec(recipe),
        "rollout": steps.rollout_spec(recipe, 1),
        "score": steps.score_spec(recipe),
        "update": steps.update_spec(recipe, 1),
        "evaluation": steps.evaluation_spec(recipe),
    }


def changed(left: Recipe, right: Recipe) -> set[str]:
    """Return the steps whose spec differs; the report shows the whole recipe and is left out."""
    before, after = specs(left), specs(right)
    return {name for name in before if before[name] != after[name]}


# ---------------------------------------------------------------- golden


def test_shared_cold_start_precedes_the_cycles_on_one_schedule(accepted):
    recipe = accepted(
        "train.cycles=40", "train.sft_warmup_cycles=600", "train.lr_schedule=cosine"
    ).recipe
    cold = steps.cold_start_spec(recipe)
    assert cold is not None
    assert cold.carries_optimizer
    assert (cold.cycles, cold.schedule.first_step, cold.schedule.total_steps) == (600, 0, 640)
    update = steps.update_spec(recipe, 39)
    assert (update.schedule.first_step, update.schedule.total_steps) == (639, 640)
    assert steps.rollout_spec(recipe, 39).task_cursor == 639 * 8


def test_cold_start_of_its_own_leaves_the_cycles_at_step_zero(accepted):
    recipe = accepted(
        "cold_start.cycles=3", "cold_start.learning_rate=0.01", "cold_start.rollouts_per_cycle=20"
    ).recipe
    cold = steps.cold_start_spec(recipe)
    assert cold is not None
    assert not cold.carries_optimizer
    assert (cold.schedule.base, cold.schedule.total_steps) == (0.01, 9)
    update = steps.update_spec(recipe, 0)
    assert (update.schedule.first_step, update.schedule.total_steps) == (0, 4)
    assert steps.rollout_spec(recipe, 0).task_cursor == 0


def test_replay_takes_several_steps_per_cycle(accepted):
    recipe = accepted(
        "train.rollouts_per_cycle=20", "train.opd_freshness=replay", "train.cycles=2"
    ).recipe
    assert steps.update_spec(recipe, 1).schedule.first_step == 3
    assert steps.update_spec(recipe, 1).schedule.total_steps == 6


def test_supervised_run_is_one_cold_start(accepted):
    recipe = accepted("run.mode=sft", "train.cycles=7").recipe
    cold = steps.cold_start_spec(recipe)
    assert cold is not None
    assert (cold.cycles, cold.schedule.total_steps, cold.carries_optimizer) == (7, 7, True)


def test_no_cold_start_unless_asked_for(accepted):
    assert steps.cold_start_spec(accepted().recipe) is None


def test_evaluation_without_a_count_takes_the_rest_of_the_split(accepted):
    spec = steps.evaluation_spec(accepted("eval.task_offset=5", "eval.split=test").recipe)
    assert spec is not None
    assert (spec.task_offset, spec.tasks) == (5, 27)


def test_toy_models_are_identified_without_their_labels(accepted):
    left, right = accepted().recipe, accepted("models.student.model_id=other").recipe
    assert changed(left, right) == set()


def test_traces_of_a_pretrained_model_use_its_tokenizer(accepted):
    tokenizer = steps.traces_spec(accepted(*HF, "models.student.revision=r").recipe).tokenizer
    assert (tokenizer.tokenizer_id, tokenizer.revision) == ("toy-student", "r")


# ---------------------------------------------------------------- what a key changes


@pytest.mark.parametrize("key", CHANGES)
def test_editing_a_key_changes_exactly_the_steps_that_read_it(minimal, key):
    given, value, expected = CHANGES[key]
    name = "environment.params.prompt_style" if key == "environment.params" else key
    left = load_text(minimal, given).recipe
    right = load_text(minimal, (*given, f"{name}={value}")).recipe
    assert left != right
    assert changed(left, right) == expected


def test_every_identity_key_is_read_by_a_step_or_named_here():
    unbuilt = tuple(row.key for row in UNBUILT if row.values is None)
    planned = ("models.reference", "source", "offline_kd", "selection.gate", *unbuilt)
    verl = ("loss.log_prob", "loss.loss_max", "loss.clip", "loss.policy", "loss.estimator")
    refused = tuple(row.key for row in UNBUILT)
    open_keys = {
        key
        for key in recipe_keys()
        if not key.startswith((*planned, *verl)) and not (key in refused and key not in CHANGES)
    }
    assert open_keys == {*CHANGES, *IN_NO_SPEC}


def test_changing_the_evaluation_changes_no_other_step(accepted):
    keys = ("eval.tasks=12", "eval.split=test", "eval.temperature=1", "eval.seed=3")
    assert changed(accepted().recipe, accepted(*keys).recipe) == {"evaluation"}


def test_changing_the_divergence_changes_only_the_update(accepted):
    for divergence in ("forward_kl", "jsd"):
        other = accepted(f"loss.divergence={divergence}").recipe
        assert changed(accepted().recipe, other) == {"update"}


def test_teachers_mode_is_no_part_of_its_weights(accepted):
    other = accepted("models.teacher.mode=privileged_context").recipe
    assert changed(accepted().recipe, other) == {"score"}


def test_report_shows_the_whole_recipe_unless_it_is_switched_off(accepted):
    report = steps.report_spec(accepted("report.max_trajectories=6").recipe)
    assert report is not None
    assert report.max_trajectories == report.recipe["report"]["max_trajectories"] == 6
    assert report != steps.report_spec(accepted().recipe)
    assert steps.report_spec(accepted("report.enabled=false").recipe) is None


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((), "strict on-policy distillation: reverse_kl over top-64 + tail"),
        (("train.opd_freshness=replay",), "online distillation with replay: reverse_kl over "),
        (("run.mode=sft",), "supervised fine-tuning: cross-entropy on oracle traces"),
        (("loss.mode=exact_full_vocab",), "reverse_kl over exact full vocab"),
    ],
)
def test_objective_is_called_what_it_is(accepted, overrides, words):
    assert words in steps.objective_words(accepted(*overrides).recipe)


@pytest.mark.parametrize("key", sorted(set(EXECUTION_KEYS) - set(FIXED_BY_A_RULE)))
def test_execution_changes_no_step(accepted, key):
    value = next((value for value, keys in EXECUTION_VALUES.items() if key in keys), "9")
    if key == "run.profile_identity":
        key, value = "runtime.inherited.run_profile_identity.profile", "x"
    assert changed(accepted().recipe, accepted(f"{key}={value}").recipe) == set()


@pytest.mark.parametrize(
    "override",
    ["device=cpu", "threads=1", "store=/elsewhere", "runs=/elsewhere", "slots=7", "offline=true"],
)
def test_device_paths_and_slots_change_no_step(accepted, override):
    left, right = accepted(), accepted(f"runtime.{override}")
    assert left.runtime != right.runtime
    assert left.recipe == right.recipe


# ---------------------------------------------------------------- properties


@settings(max_examples=60, deadline=None)
@given(
    rollouts=st.integers(1, 40),
    accumulation=st.integers(1, 40),
    cycles=st.integers(1, 20),
    warmup=st.integers(0, 20),
)
def test_updates_tile_the_schedule(minimal, rollouts, accumulation, cycles, warmup):
    recipe = load_text(
        minimal,
        (
            f"train.rollouts_per_cycle={rollouts}",
            f"train.gradient_accumulation_steps={accumulation}",
            f"train.cycles={cycles}",
            f"train.sft_warmup_cycles={warmup}",
            "train.opd_freshness=replay",
        ),
    ).recipe
    per_cycle = -(-rollouts // accumulation)
    firsts = [steps.update_spec(recipe, cycle).schedule.first_step for cycle in range(cycles)]
    assert firsts == [per_cycle * (warmup + cycle) for cycle in range(cycles)]
    assert steps.update_spec(recipe, 0).schedule.total_steps == firsts[-1] + per_cycle
