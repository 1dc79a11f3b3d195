import pytest

from core.recipe.rules import schedule

COLD = ("cold_start.cycles=1", "cold_start.learning_rate=0.1")


def keys(problems) -> list[str]:
    return [".".join(each.path) for each in problems]


@pytest.mark.parametrize(
    ("rollouts", "accumulation", "count"), [(8, 8, 0), (8, 9, 0), (9, 8, 1), (16, 8, 1)]
)
def test_strict_freshness_is_one_step_per_batch(judged, rollouts, accumulation, count):
    rule = schedule.strict_freshness_is_one_step
    given = (
        f"train.rollouts_per_cycle={rollouts}",
        f"train.gradient_accumulation_steps={accumulation}",
    )
    assert keys(judged(rule, *given)) == ["train.rollouts_per_cycle"] * count
    assert judged(rule, *given, "train.opd_freshness=replay") == []
    assert judged(rule, *given, "run.mode=sft") == []


def test_supervised_run_has_no_supervised_warmup_but_may_go_on_from_a_cold_start(judged):
    rule, warmup = schedule.supervised_run_has_no_warmup, "train.sft_warmup_cycles=1"
    assert keys(judged(rule, "run.mode=sft", warmup)) == ["train.sft_warmup_cycles"]
    assert judged(rule, "run.mode=sft", *COLD) == judged(rule, warmup) == []


def test_two_cold_starts(judged):
    rule, warmup = schedule.one_cold_start, "train.sft_warmup_cycles=1"
    assert keys(judged(rule, *COLD, warmup)) == ["train.sft_warmup_cycles"]
    assert judged(rule, *COLD) == judged(rule, warmup) == []


def test_two_budgets(judged):
    rule = schedule.one_budget
    tokens, seconds = "train.max_selected_training_tokens=9", "train.max_wall_seconds=9"
    assert keys(judged(rule, tokens, seconds)) == ["train.max_wall_seconds"]
    assert judged(rule, tokens) == judged(rule, seconds) == []


def test_a_third_budget(judged):
    """Each budget beyond the first is named."""
    given = ("train.max_selected_training_tokens=9", "train.max_generated_tokens=9")
    rule = schedule.one_budget
    assert keys(judged(rule, *given)) == ["train.max_generated_tokens"]
    both = ["train.max_generated_tokens", "train.max_wall_seconds"]
    assert keys(judged(rule, *given, "train.max_wall_seconds=9")) == both


def test_a_supervised_run_has_no_tokens_of_its_own_to_spend(judged):
    rule, given = schedule.supervised_run_generates_nothing, "train.max_generated_tokens=9"
    assert keys(judged(rule, "run.mode=sft", given)) == ["train.max_generated_tokens"]
    assert judged(rule, given) == judged(rule, "run.mode=sft") == []


def test_states_of_the_oracle_are_no_tokens_of_the_student(judged):
    rule, given = schedule.oracle_states_generate_nothing, "train.max_generated_tokens=9"
    offline = ("run.mode=offline_kd", "cache.reuse_across_policy_versions=true")
    frozen = "offline_kd.trajectory_source=frozen_student"
    assert keys(judged(rule, *offline, given)) == ["train.max_generated_tokens"]
    assert keys(judged(rule, *offline, "offline_kd.trajectory_source=persisted", given))
    assert judged(rule, *offline, frozen, given) == judged(rule, *offline) == []
    assert judged(rule, given) == []


@pytest.mark.parametrize("value", ["auto", "1", "1024"])
def test_batch_of_trajectories_is_auto_or_up_to_1024(accepted, value):
    batch = accepted(f"train.trajectory_batch_size={value}").runtime.trajectory_batch_size
    assert str(batch) == value


@pytest.mark.parametrize("value", ["0", "1025", "2.5", "many"])
def test_other_batches_are_refused(refused, value):
    assert "train.trajectory_batch_size" in refused(f"train.trajectory_batch_size={value}").message
