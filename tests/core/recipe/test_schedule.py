import pytest

from core.recipe import schedule


@pytest.mark.parametrize(
    ("rollouts", "accumulation", "steps"), [(8, 8, 1), (9, 8, 2), (1, 8, 1), (64, 8, 8)]
)
def test_steps_per_cycle_are_rounded_up(accepted, rollouts, accumulation, steps):
    recipe = accepted(
        f"train.rollouts_per_cycle={rollouts}",
        f"train.gradient_accumulation_steps={accumulation}",
        "train.opd_freshness=replay",
        "train.cycles=5",
        "train.sft_warmup_cycles=2",
    ).recipe
    assert schedule.steps_per_cycle(recipe) == steps
    assert schedule.total_steps(recipe) == steps * 7


def test_supervised_run_counts_its_cycles_once(accepted):
    recipe = accepted("run.mode=sft", "train.cycles=5").recipe
    assert schedule.num_cycles(recipe) == 0
    assert schedule.shared_cold_start_cycles(recipe) == 5
    assert schedule.total_steps(recipe) == 5


def test_cold_start_takes_its_own_count_or_the_cycles(accepted):
    cold = ("cold_start.cycles=5", "cold_start.learning_rate=.1")
    assert schedule.cold_start_rollouts(accepted(*cold).recipe) == 8
    own = accepted(*cold, "cold_start.rollouts_per_cycle=12").recipe
    assert schedule.cold_start_rollouts(own) == 12
    assert own.cold_start is not None
    assert schedule.own_schedule(own, own.cold_start).total_steps == 10
