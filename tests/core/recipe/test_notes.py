import pytest

from core.recipe.loading import load_text
from core.recipe.notes import IDLE

VALUES = {
    "selection.ratio": "selection.ratio=0.5",
    "loss.jsd_beta": "loss.jsd_beta=0.3",
    "loss.log_prob_min_clamp": "loss.log_prob_min_clamp=-5",
    "loss.loss_max_clamp": "loss.loss_max_clamp=5",
    "loss.skew": "loss.skew=0.2",
    "loss.head_mass": "loss.head_mass=0.2",
    "loss.entropy_threshold": "loss.entropy_threshold=0.2",
    "loss.clip_ratio": "loss.clip_ratio=0.3",
    "loss.clip_ratio_low": "loss.clip_ratio_low=0.3",
    "loss.clip_ratio_high": "loss.clip_ratio_high=0.3",
    "loss.clip_ratio_c": "loss.clip_ratio_c=5",
    "loss.estimator_implementation_version": "loss.estimator_implementation_version=1",
    "train.stop_after_cycles": "train.stop_after_cycles=5",
    "run.deterministic": "run.deterministic=false",
    "eval.seed": "eval.seed=3",
    "models.student.lora.dropout": "models.student.lora.dropout=0.1",
}
WITH_MODE = {
    "loss.tail_epsilon": ("loss.mode=exact_full_vocab", "loss.tail_epsilon=1e-6"),
    "loss.divergence": ("run.mode=sft", "loss.divergence=forward_kl"),
    "loss.teacher_temperature": ("run.mode=sft", "loss.teacher_temperature=2"),
    "loss.cross_tokenizer": (
        "loss.mode=verl_pg_k1",
        "loss.aggregation=token-mean",
        "loss.cross_tokenizer=true",
    ),
    "models.teacher.toy_vocabulary": ("models.backend=hf", "models.teacher.toy_vocabulary=second"),
    "loss.top_k": ("loss.mode=verl_pg_k1", "loss.aggregation=token-mean", "loss.top_k=3"),
    "train.first_task": ("run.mode=sft", "train.first_task=3"),
    "train.opd_freshness": ("run.mode=sft", "train.opd_freshness=replay"),
    "train.stop_below_entropy": ("run.mode=sft", "train.stop_below_entropy=0.1"),
    "train.stop_below_success": ("run.mode=sft", "train.stop_below_success=0.1"),
    "train.eval_every_cycles": ("run.mode=sft", "train.eval_every_cycles=2"),
    "models.reference": (
        *("run.mode=sft", "models.backend=hf", "runtime.models_runtime=shared_backbone"),
        *(f"models.{role}.model_id=base" for role in ("student", "teacher", "reference")),
        "models.teacher.adapter.path=a",
    ),
}
OF_EPISODES = {
    "rollout.max_turns": "rollout.max_turns=2",
    "rollout.max_new_tokens_per_turn": "rollout.max_new_tokens_per_turn=9",
    "rollout.max_total_tokens": "rollout.max_total_tokens=99",
    "rollout.max_parse_errors": "rollout.max_parse_errors=3",
    "rollout.max_repeated_calls": "rollout.max_repeated_calls=3",
    "eval.max_turns": "eval.max_turns=2",
}
"""Limits that a single response does not have."""

FROM_FILES = """\
models: {backend: hf, student: {model_id: m}, teacher: {model_id: m}}
source: {kind: verl_parquet, train_files: [a], val_files: [b]}
"""
SMALL_COLD_START = (
    "train.gradient_accumulation_steps=4",
    "train.opd_freshness=replay",
    "train.rollouts_per_cycle=16",
    "cold_start.cycles=3",
    "cold_start.rollouts_per_cycle=4",
    "cold_start.learning_rate=.1",
)
"""One optimizer step per supervised cycle, four per on-policy cycle."""


def test_plain_recipe_needs_no_note(accepted):
    assert accepted().notes == []


@pytest.mark.parametrize(("key", "override"), OF_EPISODES.items())
def test_limits_of_an_episode_mean_nothing_to_a_single_response(accepted, key, override):
    found = load_text(FROM_FILES, [override]).notes
    assert len(found) == 1
    assert found[0].startswith(f"{key} has no effect: ")
    assert accepted(override).notes == []


@pytest.mark.parametrize("key", [key for key in IDLE if key not in OF_EPISODES])
def test_key_without_effect_is_noted(accepted, key):
    overrides = WITH_MODE.get(key) or (VALUES[key],)
    found = accepted(*overrides).notes
    assert len(found) == 1
    assert found[0].startswith(f"{key} has no effect: ")


@pytest.mark.parametrize(
    "overrides",
    [
        ("selection.selector=uniform_ratio", "selection.ratio=0.5"),
        ("loss.divergence=jsd", "loss.jsd_beta=0.3"),
        ("loss.divergence=rescaled_jsd", "loss.jsd_beta=0.001"),
        ("loss.divergence=skew_reverse_kl", "loss.skew=0.3"),
        ("loss.divergence=adaptive_kl", "loss.head_mass=0.3"),
        ("loss.divergence=entropy_aware_kl", "loss.entropy_threshold=0.3"),
        ("loss.mode=union_topk", "loss.tail_epsilon=1e-6"),
        ("loss.teacher_temperature=0.7",),
        ("loss.mode=verl_pg_k1", "loss.aggregation=token-mean", "loss.clip_ratio_c=5"),
        ("loss.tail_epsilon=1e-6",),
        ("eval.seed=3", "eval.temperature=1"),
    ],
)
def test_key_with_effect_is_not_noted(accepted, overrides):
    assert accepted(*overrides).notes == []


def test_settings_and_inert_keys_are_listed_apart(accepted):
    found = accepted("memory.oom_retries=2", "cache.keep_cycles=2", "run.name=x").notes
    assert found == [
        "execution settings, no part of identity: memory.oom_retries",
        "accepted, without effect here: cache.keep_cycles",
    ]


@pytest.mark.parametrize(
    "override",
    [
        "rollout.record_logprobs=true",
        "train.log_every_steps=5",
    ],
)
def test_setting_that_nothing_reads_is_said_to_have_no_effect(accepted, override):
    key = override.partition("=")[0]
    assert accepted(override).notes == [f"accepted, without effect here: {key}"]


def test_automatic_precision_of_a_pretrained_model_is_noted(accepted):
    found = accepted("models.backend=hf", "models.teacher.dtype=auto").notes
    assert len(found) == 1
    assert "models.teacher.dtype auto means float32" in found[0]


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        (("train.warmup_steps=5",), 1),
        (("train.warmup_steps=4",), 0),
        (("train.warmup_steps=5", "train.cycles=0"), 0),
        (("cold_start.cycles=2", "cold_start.learning_rate=.1", "cold_start.warmup_steps=3"), 1),
        (("cold_start.cycles=3", "cold_start.learning_rate=.1", "cold_start.warmup_steps=3"), 0),
        ((*SMALL_COLD_START, "cold_start.warmup_steps=4"), 1),
        ((*SMALL_COLD_START, "cold_start.warmup_steps=3"), 0),
    ],
)
def test_warmup_longer_than_the_run_is_noted(accepted, overrides, count):
    assert len(accepted(*overrides).notes) == count


def test_measuring_on_training_tasks_is_noted(accepted):
    assert "trained on" in accepted("eval.split=train").notes[0]


@pytest.mark.parametrize(("first", "count"), [(7, 0), (8, 1)])
def test_passing_over_every_task_is_noted(accepted, first, count):
    found = accepted("environment.train_tasks=8", f"train.first_task={first}").notes
    assert sum("passes over all 8 tasks" in note for note in found) == count


@pytest.mark.parametrize(
    ("source", "count"), [("oracle", 1), ("frozen_student", 0)], ids=["oracle", "student"]
)
def test_a_data_set_larger_than_its_tasks_is_noted_where_none_is_solved_twice(
    accepted, source, count
):
    changes = ["run.mode=offline_kd", "cache.reuse_across_policy_versions=true"]
    changes += ["environment.train_tasks=8", "offline_kd.collection_tasks=9"]
    found = accepted(*changes, f"offline_kd.trajectory_source={source}").notes
    assert sum("collection_tasks 9 exceeds the 8 tasks" in note for note in found) == count


def test_a_threshold_that_no_gate_reads_is_noted(accepted):
    gate = ("selection.selector=verifier_gated", "selection.gate.version=v1")
    gated = ("environment.name=tool_policy", *gate)
    assert accepted(*gated).notes == []
    found = accepted(*gated, "selection.gate.threshold=0.5").notes
    assert len(found) == 1
    assert found[0].startswith("selection.gate.threshold has no effect")


@pytest.mark.parametrize("beta", [0.001, 0.999])
def test_a_tiny_jsd_weight_is_called_a_learning_rate(accepted, beta):
    """C39: β = 0.001 makes the loss a thousand times smaller; a sweep of β sweeps the rate."""
    found = accepted("loss.divergence=jsd", f"loss.jsd_beta={beta}").notes
    assert len(found) == 1
    assert "to about 0.001 of a KL; rescaled_jsd keeps its size" in found[0]


def test_cross_entropy_on_the_student_s_own_samples_is_called_that(accepted):
    """C48: only the cold start's cross-entropy is on demonstrations."""
    found = accepted("loss.sampled_token_nll_weight=0.5").notes
    assert len(found) == 1
    assert "student's own samples" in found[0]


@pytest.mark.parametrize("truncation", ["rollout.top_p=0.8", "rollout.top_k=5"])
def test_truncated_sampling_is_not_called_on_policy(accepted, truncation):
    """C50."""
    found = accepted(truncation).notes
    assert len(found) == 1
    assert "not exactly on-policy" in found[0]
