import importlib
import json
import pkgutil
from typing import get_args

import pytest

import core.recipe
from core.recipe import model_steps, steps, teacher_steps
from core.recipe.keys import recipe_keys
from core.recipe.loading import load_text
from core.recipe.rules.models import SHARED_FIELDS
from core.recipe.schema.loss import Divergence
from core.recipe.schema.models import ToySize
from core.recipe.specs import Spec
from core.recipe.support import UNBUILT

HF = ("models.backend=hf",)
COLD = ("cold_start.cycles=4", "cold_start.learning_rate=0.01")
TOKEN_MEAN = "loss.aggregation=token-mean"
PG = ("loss.mode=verl_pg_k1", TOKEN_MEAN)
TOP_K = (
    "loss.mode=forward_kl_topk",
    "loss.divergence=forward_kl",
    "loss.scale_by_temperature_squared=false",
    TOKEN_MEAN,
)
NF4 = (*HF, "models.student.quantization=nf4", "models.teacher.quantization=nf4")
HF_HINT = (*HF, "models.teacher.mode=privileged_context")
STUDENT_ADAPTER = (
    *HF,
    "models.student.adapter.path=a",
    "models.student.adapter.base_model_revision=b",
    "models.student.adapter.tokenizer_fingerprint=c",
)
TEACHER_ADAPTER = (*HF, "models.teacher.adapter.path=a")
REFERENCE = (
    *TEACHER_ADAPTER,
    "models.runtime=shared_backbone",
    *(f"models.{role}.model_id=base" for role in ("student", "teacher", "reference")),
    "models.reference.adapter.path=a",
    "models.reference.adapter.base_model_revision=b",
    "models.reference.adapter.tokenizer_fingerprint=c",
)
EVALUATION = {"evaluation"}
SPLITS = {"splits", "held_out"}
ROLLOUT = {"rollout", "evaluation"}
UPDATE = {"update"}
TRAINING = {"cold_start", "update"}
STATE = {"student", "cold_start", "rollout", "score", "update"}

CHANGES: dict[str, tuple[tuple[str, ...], str, set[str]]] = {
    # key: (overrides on both sides, another value, the specs that it changes)
    "run.mode": ((), "sft", {"cold_start", "rollout", "update"}),
    "run.seed": (COLD, "5", STATE),
    "models.backend": ((), "hf", {"traces", "teacher", "student"}),
    "models.toy_vocabulary": ((), "worlds", {"traces", "teacher", "student"}),
    "models.student.model_id": (HF, "x", {"traces", "student"}),
    "models.student.revision": (HF, "x", {"traces", "student"}),
    **{
        f"models.{role}.{key}": (HF, value, specs)
        for role, specs in (("student", {"traces", "student"}), ("teacher", {"teacher"}))
        for key, value in (
            ("tokenizer_id", "x"),
            ("tokenizer_revision", "x"),
            ("trust_remote_code", "true"),
        )
    },
    "models.student.dtype": (HF, "bfloat16", {"student"}),
    "models.student.quantization": (HF, "nf4", {"student"}),
    "models.student.prepare_kbit_training": (NF4, "false", {"student"}),
    "models.student.attn_implementation": (HF, "eager", {"student"}),
    "models.student.toy.hidden_size": ((), "32", {"student"}),
    "models.student.toy.num_layers": ((), "3", {"student"}),
    "models.student.toy.num_heads": ((), "2", {"student"}),
    "models.student.toy.intermediate_size": ((), "64", {"student"}),
    "models.student.toy.max_position_embeddings": ((), "2048", {"student"}),
    "models.student.lora.enabled": (HF, "false", {"student"}),
    "models.student.lora.r": (HF, "4", {"student"}),
    "models.student.lora.alpha": (HF, "4", {"student"}),
    "models.student.lora.target_modules": (HF, "[q_proj]", {"student"}),
    "models.student.lora.dropout": (HF, "0.1", {"student"}),
    "models.student.lora.bias": (HF, "all", {"student"}),
    "models.teacher.model_id": (HF, "x", {"teacher"}),
    "models.teacher.revision": (HF, "x", {"teacher"}),
    "models.teacher.dtype": (HF, "bfloat16", {"teacher"}),
    "models.teacher.quantization": (HF, "nf4", {"teacher"}),
    "models.teacher.prepare_kbit_training": (NF4, "false", {"teacher"}),
    "models.student.adapter.path": (STUDENT_ADAPTER, "x", {"student"}),
    "models.teacher.adapter.path": (TEACHER_ADAPTER, "x", {"teacher"}),
    "models.reference.adapter.path": (REFERENCE, "x", UPDATE),
    "models.teacher.attn_implementation": (HF, "eager", {"teacher"}),
    "models.teacher.toy.hidden_size": ((), "32", {"teacher"}),
    "models.teacher.toy.num_layers": ((), "3", {"teacher"}),
    "models.teacher.toy.num_heads": ((), "2", {"teacher"}),
    "models.teacher.toy.intermediate_size": ((), "64", {"teacher"}),
    "models.teacher.toy.max_position_embeddings": ((), "2048", {"teacher"}),
    "models.teacher.mode": ((), "privileged_context", {"score"}),
    "models.teacher.toy_teacher_seed": ((), "5", {"teacher"}),
    "models.teacher.toy_vocabulary": (
        ("loss.mode=shared_vocab", "loss.cross_tokenizer=true"),
        "second",
        {"teacher"},
    ),
    "models.teacher.toy_pretrain_steps": ((), "5", {"teacher"}),
    "models.teacher.toy_pretrain_lr": ((), "0.5", {"teacher"}),
    "models.teacher.toy_pretrain_batch_size": ((), "5", {"teacher"}),
    "environment.params": ((), "compact", {*SPLITS, "traces", "rollout", "evaluation"}),
    "environment.train_tasks": ((), "65", SPLITS),
    "environment.eval_tasks": ((), "33", {"held_out", "evaluation"}),
    "environment.test_tasks": (("eval.split=test",), "33", {"held_out", "evaluation"}),
    "environment.split_seed": ((), "8", SPLITS),
    "environment.difficulty": ((), "hard", SPLITS),
    "rollout.max_turns": ((), "5", {"traces", *ROLLOUT}),
    "rollout.max_new_tokens_per_turn": ((), "65", ROLLOUT),
    "rollout.max_total_tokens": ((), "700", ROLLOUT),
    "rollout.temperature": ((), "0.5", {"rollout"}),
    "rollout.top_p": ((), "0.5", {"rollout"}),
    "rollout.top_k": ((), "5", {"rollout"}),
    "rollout.max_parse_errors": ((), "3", ROLLOUT),
    "rollout.max_repeated_calls": ((), "3", ROLLOUT),
    "rollout.template": (HF_HINT, "tokenizer", {"traces", "score", *ROLLOUT}),
    "selection.selector": (COLD, "hybrid", {"cold_start", "score"}),
    "selection.ratio": ((*COLD, "selection.selector=hybrid"), "0.5", {"cold_start", "score"}),
    "selection.max_positions_per_trajectory": (COLD, "5", {"cold_start", "score"}),
    "selection.critical_weight": (COLD, "5", {"cold_start", "score"}),
    "selection.other_weight": (COLD, "5", {"cold_start", "score"}),
    "selection.skip_first_tokens": (COLD, "2", {"score"}),
    "loss.mode": ((), "exact_full_vocab", {"score", "update"}),
    "loss.aggregation": (COLD, "token-mean", TRAINING),
    "loss.divergence": ((), "forward_kl", UPDATE),
    "loss.temperature": ((), "2", {"score", "update"}),
    "loss.teacher_temperature": ((), "2", {"score", "update"}),
    "loss.scale_by_temperature_squared": ((), "false", UPDATE),
    "loss.top_k": ((), "5", {"score"}),
    "loss.jsd_beta": (("loss.divergence=jsd",), "0.3", UPDATE),
    "loss.skew": (("loss.divergence=skew_forward_kl",), "0.3", UPDATE),
    "loss.head_mass": (("loss.divergence=adaptive_kl",), "0.3", UPDATE),
    "loss.entropy_threshold": (("loss.divergence=entropy_aware_kl",), "0.3", UPDATE),
    "loss.log_prob_min_clamp": (TOP_K, "-5", UPDATE),
    "loss.loss_max_clamp": (TOP_K, "5", UPDATE),
    "loss.cross_tokenizer": (PG, "true", {"score"}),
    "loss.clip_ratio_low": (PG, "0.3", UPDATE),
    "loss.clip_ratio_high": (PG, "0.3", UPDATE),
    "loss.clip_ratio_c": (PG, "5", UPDATE),
    "loss.tail_epsilon": ((), "1e-6", UPDATE),
    "loss.sampled_token_nll_weight": ((), "0.5", UPDATE),
    "cold_start.cycles": (COLD, "5", {"cold_start"}),
    "cold_start.rollouts_per_cycle": (COLD, "5", {"cold_start"}),
    "cold_start.demonstrations": (COLD, "5", {"cold_start"}),
    "cold_start.learning_rate": (COLD, "0.5", {"cold_start"}),
    "cold_start.lr_schedule": (COLD, "linear", {"cold_start"}),
    "cold_start.warmup_steps": (COLD, "1", {"cold_start"}),
    "train.cycles": ((), "5", UPDATE),
    "train.rollouts_per_cycle": (COLD, "4", {"cold_start", "rollout"}),
    "train.gradient_accumulation_steps": (COLD, "9", {"teacher", *TRAINING}),
    "train.first_task": ((), "5", {"rollout"}),
    "train.opd_freshness": ((), "replay", UPDATE),
    "train.learning_rate": (COLD, "0.5", UPDATE),
    "train.weight_decay": (COLD, "0.5", TRAINING),
    "train.max_grad_norm": (COLD, "0.5", TRAINING),
    "train.warmup_steps": ((), "1", UPDATE),
    "train.lr_schedule": ((), "cosine", UPDATE),
    "train.optimizer": (COLD, "adamw8bit", TRAINING),
    "train.adam_beta1": (COLD, "0.5", TRAINING),
    "train.adam_beta2": (COLD, "0.5", TRAINING),
    "train.adam_eps": (COLD, "1e-6", TRAINING),
    "train.stop_below_entropy": ((), "0.1", UPDATE),
    "train.stop_below_success": ((), "0.1", UPDATE),
    "train.stop_after_cycles": (("train.stop_below_entropy=0.1",), "5", UPDATE),
    "train.max_selected_training_tokens": ((), "5", UPDATE),
    "train.max_generated_tokens": ((), "5", UPDATE),
    "train.max_wall_seconds": ((), "5", UPDATE),
    "train.sft_warmup_cycles": ((), "1", {"cold_start", "rollout", "update"}),
    "eval.enabled": ((), "false", EVALUATION),
    "eval.tasks": ((), "5", EVALUATION),
    "eval.task_offset": ((), "5", EVALUATION),
    "eval.split": ((), "train", {"held_out", *EVALUATION}),
    "eval.temperature": ((), "0.5", EVALUATION),
    "eval.max_turns": ((), "5", EVALUATION),
    "eval.samples_per_task": (("eval.temperature=1",), "4", EVALUATION),
    "eval.seed": (("eval.temperature=1",), "5", EVALUATION),
    "report.enabled": ((), "false", set()),
    "report.max_trajectories": ((), "6", set()),
    "report.max_tokens_per_trajectory": ((), "6", set()),
}

ADAPTER_FACTS = (
    *(
        f"models.{role}.adapter.{name}"
        for role in ("student", "teacher", "reference")
        for name in ("source", "revision", "base_model_revision", "tokenizer_fingerprint")
    ),
    "models.teacher.adapter.require_policy_evaluation",
    *(
        f"models.teacher.adapter.minimum_{name}_rate"
        for name in ("strict_success", "recovery_after_error", "parse_valid_tool_call")
    ),
    "models.teacher.adapter.minimum_tool_execution_success_rate",
)

GATE = (
    *(f"models.teacher.qualification.{name}" for name in ("split", "tasks", "task_offset")),
    *(
        f"models.teacher.qualification.minimum_{name}_rate"
        for name in ("strict_success", "recovery_after_error", "parse_valid_tool_call")
    ),
    "models.teacher.qualification.minimum_tool_execution_success_rate",
)

THIRD = (*SHARED_FIELDS, *(f"toy.{name}" for name in ToySize.model_fields))

IN_NO_SPEC = {
    **{f"models.reference.{key}": "must be the student's: test_model_steps" for key in THIRD},
    **dict.fromkeys(ADAPTER_FACTS, "decides whether an adapter is accepted, which is a digest"),
    **dict.fromkeys(GATE, "decides what a teacher must show first: test_teacher_steps"),
    "schema_version": "a version of the keys",
    "run.deterministic": "deterministic kernels are always asked for",
    "environment.name": "one environment is built",
    "loss.clip_ratio": "the lower and the upper half width have their own keys",
    "loss.policy_loss_mode": "has one value",
    "loss.estimator_implementation_version": "there is one estimator",
    "run.start": "names a student of another run, which takes the place of a fresh one",
    "eval.baseline_enabled": "decides which evaluations a flow asks for",
    "train.eval_every_cycles": "decides which evaluations a flow asks for",
}


@pytest.mark.parametrize("key", CHANGES)
def test_editing_a_key_changes_exactly_the_steps_that_read_it(minimal, changed, key):
    given, value, expected = CHANGES[key]
    name = "environment.params.prompt_style" if key == "environment.params" else key
    left = load_text(minimal, given).recipe
    right = load_text(minimal, (*given, f"{name}={value}")).recipe
    assert left != right
    assert changed(left, right) == expected


def test_every_identity_key_is_read_by_a_step_or_named_here():
    """C69: a key that nothing reads would be ignored in silence."""
    unbuilt = tuple(row.key for row in UNBUILT if row.values is None)
    recorded = ("selection.gate",)  # what opens the gate is the environment's verdict
    planned = ("source", "offline_kd", *recorded, *unbuilt)
    refused = tuple(row.key for row in UNBUILT)
    open_keys = {
        key
        for key in recipe_keys()
        if ".plugin." not in key  # test_plugin_keys
        and not key.startswith(planned)
        and not (key in refused and key not in CHANGES)
    }
    assert open_keys == {*CHANGES, *IN_NO_SPEC}


def test_changing_the_evaluation_changes_no_other_step(accepted, changed):
    keys = ("eval.tasks=12", "eval.split=test", "eval.temperature=1", "eval.seed=3")
    assert changed(accepted().recipe, accepted(*keys).recipe) == {"held_out", "evaluation"}


def test_changing_the_divergence_changes_only_the_update(accepted, changed):
    for divergence in get_args(Divergence):
        if divergence != "reverse_kl":
            other = accepted(f"loss.divergence={divergence}").recipe
            assert changed(accepted().recipe, other) == {"update"}


def test_teachers_mode_is_no_part_of_its_weights(accepted, changed):
    other = accepted("models.teacher.mode=privileged_context").recipe
    assert changed(accepted().recipe, other) == {"score"}


@pytest.mark.parametrize("overrides", [(), COLD, HF, ("models.teacher.mode=privileged_context",)])
def test_specs_survive_strict_json(accepted, overrides):
    recipe = accepted(*overrides, "environment.params.prompt_style=compact").recipe
    built = [
        *(make(recipe) for make in (steps.traces_spec, model_steps.teacher_spec)),
        *(make(recipe) for make in (model_steps.student_spec, steps.score_spec, steps.report_spec)),
        *(make(recipe) for make in (steps.cold_start_spec, steps.evaluation_spec)),
        teacher_steps.qualification_spec(recipe),
        *(make(recipe, 3) for make in (steps.rollout_spec, steps.update_spec)),
    ]
    for spec in filter(None, built):
        text = json.dumps(spec.model_dump(mode="json"), allow_nan=False)
        assert type(spec).model_validate(json.loads(text)) == spec


def test_every_field_of_a_spec_is_explained():
    for module in pkgutil.iter_modules(core.recipe.__path__, "core.recipe."):
        importlib.import_module(module.name)
    classes = [each for each in Spec.__subclasses__() if each.__module__.startswith("core.recipe")]
    assert len(classes) == 36
    silent = [
        f"{each.__name__}.{name}"
        for each in classes
        for name, field in each.model_fields.items()
        if not field.description
    ]
    assert silent == []
