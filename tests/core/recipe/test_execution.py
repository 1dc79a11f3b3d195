import pytest

from core.recipe.execution import EXECUTION_KEYS, EXECUTION_SECTIONS
from core.recipe.keys import fields
from core.recipe.recipe import Recipe

EXECUTION_VALUES = {
    "auto": ("memory.strategy", "models.device", "train.trajectory_batch_size"),
    "false": (
        "train.length_bucketing",
        "memory.empty_cache_between_phases",
        "memory.reset_peak_stats_each_cycle",
        "cache.verify_checksums_on_load",
    ),
    "true": (
        "cache.enabled",
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

WITH_OWN_TESTS = (
    *FIXED_BY_A_RULE,
    "models.runtime",
    *(key for key in EXECUTION_KEYS if key.endswith(".plugin.path")),  # test_plugin_keys
)


def test_every_execution_key_has_a_field_of_its_own():
    targets = [f"runtime.{field}" for field in EXECUTION_KEYS.values()]
    assert len(set(targets)) == len(targets) == 40
    assert set(targets) <= set(fields())


def test_every_inherited_field_has_a_key():
    inherited = {key for key in fields() if key.startswith("runtime.inherited.")}
    assert inherited <= {f"runtime.{field}" for field in EXECUTION_KEYS.values()}


def test_sections_without_identity_are_exactly_those_named():
    heads = {key.split(".")[0] for key in EXECUTION_KEYS}
    assert heads - set(Recipe.model_fields) == set(EXECUTION_SECTIONS)


@pytest.mark.parametrize("key", sorted(set(EXECUTION_KEYS) - set(WITH_OWN_TESTS)))
def test_execution_changes_no_step(accepted, changed, key):
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


@pytest.mark.parametrize(
    "key",
    [
        "memory.strategy=swap",
        "memory.auto_swap_vram_headroom_gb=9",
        "runtime.memory_strategy=resident",
    ],
)
def test_the_memory_strategy_changes_no_key(accepted, changed, key):
    left, right = accepted(), accepted(key)
    assert left.runtime != right.runtime
    assert changed(left.recipe, right.recipe) == set()


def test_one_base_for_all_roles_changes_no_key(accepted, changed):
    roles = (
        "models.backend=hf",
        "models.student.model_id=base",
        "models.teacher.model_id=base",
        "models.teacher.adapter.path=a",
    )
    left, right = accepted(*roles), accepted(*roles, "models.runtime=shared_backbone")
    assert (left.runtime.models_runtime, left.recipe) == ("dual_model", right.recipe)
    assert changed(left.recipe, right.recipe) == set()
