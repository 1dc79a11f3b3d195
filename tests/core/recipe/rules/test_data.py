import pytest

from core.environments import registry
from core.recipe.rules import data


def keys(problems) -> list[str]:
    return [".".join(each.path) for each in problems]


def test_unknown_environment_lists_the_registry(judged):
    found = judged(data.environment_exists, "environment.name=calcul")
    assert keys(found) == ["environment.name"]
    assert found[0].what == "there is no such environment"
    assert all(name in found[0].hint for name in registry.names())


@pytest.mark.parametrize("override", ["nonsense=1", "prompt_style=tiny", "name=calculator"])
def test_environment_refuses_parameters_it_does_not_have(judged, override):
    found = judged(data.environment_exists, f"environment.params.{override}")
    assert keys(found)[0].startswith("environment.params")


def test_environment_accepts_its_parameters(judged):
    assert judged(data.environment_exists, "environment.params.prompt_style=compact") == []


def test_demonstrations_are_training_tasks(judged):
    cold = ("cold_start.cycles=1", "cold_start.learning_rate=0.1", "environment.train_tasks=8")
    rule = data.demonstrations_exist
    assert judged(rule, *cold) == judged(rule, *cold, "cold_start.demonstrations=8") == []
    found = judged(rule, *cold, "cold_start.demonstrations=9")
    assert keys(found) == ["cold_start.demonstrations"]
    assert found[0].what == "is 9, and environment.train_tasks is 8"


@pytest.mark.parametrize(
    ("override", "key"),
    [
        (
            "cache.reuse_across_policy_versions=true",
            "runtime.inherited.cache_reuse_across_policy_versions",
        ),
        ("cache.strict_policy_version=false", "runtime.inherited.cache_strict_policy_version"),
        ("run.mode=offline_kd", "run.mode"),
    ],
)
def test_targets_are_of_the_student_that_the_mode_allows(judged, override, key):
    assert keys(judged(data.targets_belong_to_one_student, override)) == [key]


def test_offline_mode_with_reuse_passes(judged):
    overrides = ("run.mode=offline_kd", "cache.reuse_across_policy_versions=true")
    assert judged(data.targets_belong_to_one_student, *overrides) == []


def test_refusal_calls_a_moved_key_by_its_submitted_name(refused):
    error = refused("cache.strict_policy_version=false")
    assert "cache.strict_policy_version = false: run.mode opd" in error.message
    assert "inherited" not in str(error)


@pytest.mark.parametrize(
    "override",
    [
        "trajectory_source=frozen_student",
        "collection_seed=5",
        "collection_tasks=5",
        f"task_schedule_digest={'a' * 64}",
    ],
)
def test_offline_settings_in_another_mode(judged, override):
    rule, given = data.offline_settings_need_offline_mode, f"offline_kd.{override}"
    assert keys(judged(rule, given)) == [f"offline_kd.{override.partition('=')[0]}"]
    assert judged(rule, given, "run.mode=offline_kd") == []


def test_persisted_data_set_and_its_path_come_together(judged):
    rule, source = data.dataset_path_means_persisted, "offline_kd.trajectory_source=persisted"
    path = "offline_kd.dataset_path=d"
    assert keys(judged(rule, source)) == ["offline_kd.dataset_path"]
    assert keys(judged(rule, path)) == ["offline_kd.dataset_path"]
    assert judged(rule, source, path) == []


@pytest.mark.parametrize(("total", "count"), [(63, 1), (64, 1), (65, 0)])
def test_transcript_must_be_longer_than_a_turn(judged, total, count):
    found = judged(data.episode_exceeds_turn, f"rollout.max_total_tokens={total}")
    assert keys(found) == ["rollout.max_total_tokens"] * count


@pytest.mark.parametrize(("turns", "count"), [(16, 0), (17, 1)])
def test_evaluation_has_at_most_four_times_the_turns(judged, turns, count):
    found = judged(data.evaluation_turns_are_comparable, f"eval.max_turns={turns}")
    assert keys(found) == ["eval.max_turns"] * count


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("eval.tasks=33",), "eval.tasks"),
        (("eval.tasks=1", "eval.task_offset=32"), "eval.tasks"),
        (("eval.task_offset=32",), "eval.task_offset"),
        (("eval.split=test", "environment.test_tasks=0"), "eval.task_offset"),
        (("eval.split=train", "eval.tasks=65"), "eval.tasks"),
    ],
)
def test_evaluated_slice_must_exist(judged, overrides, key):
    assert keys(judged(data.evaluation_lies_in_the_split, *overrides)) == [key]


@pytest.mark.parametrize(
    "overrides",
    [
        ("eval.tasks=32",),
        ("eval.tasks=1", "eval.task_offset=31"),
        ("eval.task_offset=31",),
        ("eval.split=train", "eval.tasks=64"),
        ("eval.enabled=false", "eval.tasks=99"),
    ],
)
def test_slice_inside_the_split_passes(judged, overrides):
    assert judged(data.evaluation_lies_in_the_split, *overrides) == []


@pytest.mark.parametrize(
    ("world", "count"),
    [("calculator", 1), ("sqlite", 1), ("tool_policy", 0), ("sqlite_recovery", 0), ("nowhere", 0)],
)
def test_a_gate_needs_a_world_that_gives_verdicts(judged, world, count):
    rule, name = data.gated_world_gives_verdicts, f"environment.name={world}"
    gated = ("selection.selector=verifier_gated", "selection.gate.version=v1")
    assert keys(judged(rule, name, *gated)) == ["selection.selector"] * count
    assert judged(rule, name) == []
    assert judged(rule, name, "environment.params.prompt_style=baroque", *gated) == []


@pytest.mark.parametrize(("samples", "temperature", "count"), [(4, 0, 1), (4, 0.7, 0), (1, 0, 0)])
def test_samples_of_one_task_need_a_temperature(judged, samples, temperature, count):
    given = (f"eval.samples_per_task={samples}", f"eval.temperature={temperature}")
    found = judged(data.repeated_samples_differ, *given)
    assert keys(found) == ["eval.samples_per_task"] * count
