import pytest

from core.errors import RecipeError
from core.recipe import steps
from core.recipe.objective import METHODS, objective_words, run_kind
from core.recipe.offline import adopted_dataset_spec, dataset_spec, is_persisted

OFFLINE = ("run.mode=offline_kd", "cache.reuse_across_policy_versions=true")
FROZEN = (*OFFLINE, "offline_kd.trajectory_source=frozen_student")
COLD = ("cold_start.cycles=3", "cold_start.learning_rate=0.01", "cold_start.demonstrations=5")


def test_a_set_of_the_oracle_has_an_episode_per_task_and_no_sampling(accepted):
    recipe = accepted(*OFFLINE).recipe
    spec = dataset_spec(recipe)
    assert (spec.source, spec.rollout) == ("oracle", None)
    assert spec.episodes == recipe.environment.train_tasks


def test_a_frozen_student_samples_on_a_seed_of_its_own_the_tasks_of_the_run(accepted):
    one = accepted(*FROZEN, "offline_kd.collection_tasks=12", "offline_kd.collection_seed=9").recipe
    spec = dataset_spec(one)
    assert spec.order_seed == one.run.seed
    assert (spec.rollout.run_seed, spec.rollout.rollouts, spec.episodes) == (9, 12, 12)
    more = accepted(*FROZEN, "offline_kd.collection_tasks=12", "train.cycles=9").recipe
    assert dataset_spec(more).score == spec.score


def test_cycles_replay_one_window_after_the_other(accepted):
    recipe = accepted(*OFFLINE, "train.cycles=3").recipe
    windows = [steps.update_spec(recipe, cycle).window for cycle in range(3)]
    assert [(one.first, one.episodes) for one in windows] == [(0, 8), (8, 8), (16, 8)]
    assert {steps.update_spec(recipe, cycle).freshness for cycle in range(3)} == {"frozen"}
    assert steps.update_spec(accepted().recipe, 0).window is None


def test_replay_is_never_called_on_policy(accepted):
    replay = accepted("train.opd_freshness=replay").recipe
    assert run_kind(replay) == METHODS[run_kind(replay)] == "online_distillation_with_replay"
    assert "on-policy" not in objective_words(replay)
    assert METHODS[run_kind(accepted().recipe)] == "on_policy_distillation"
    assert run_kind(accepted("run.mode=sft").recipe) == "sft"
    report = steps.report_spec(replay)
    assert report.title.startswith(f"{report.mode} on ")


def test_a_supervised_run_goes_on_from_its_cold_start_on_the_schedule_of_train(accepted):
    recipe = accepted("run.mode=sft", *COLD, "train.cycles=4").recipe
    cold, after = steps.cold_start_spec(recipe), steps.continued_spec(recipe)
    assert (cold.cycles, cold.carries_optimizer) == (3, False)
    assert (after.cycles, after.schedule.total_steps, after.schedule.base) == (4, 4, 1e-4)
    assert after.demonstrations == cold.demonstrations == 5
    assert steps.continued_spec(accepted(*COLD).recipe) is None
    assert steps.continued_spec(accepted("run.mode=sft").recipe) is None
    assert cold == steps.cold_start_spec(accepted(*COLD, "train.cycles=4").recipe)


def test_an_existing_set_counts_by_content_and_what_was_asked_not_by_seed_or_length(accepted):
    here = (*OFFLINE, "offline_kd.trajectory_source=persisted")
    named = (*here, f"offline_kd.dataset_path=sha256:{'a' * 64}")
    recipe = accepted(*named).recipe
    spec = adopted_dataset_spec(recipe)
    assert (spec.digest, spec.score.run_seed) == ("a" * 64, 0)
    assert spec.score.top_k == recipe.loss.top_k
    assert adopted_dataset_spec(accepted(*named, "run.seed=7", "train.cycles=9").recipe) == spec
    assert is_persisted(recipe)
    assert not is_persisted(accepted(*FROZEN).recipe)


@pytest.mark.parametrize("named", ["some/where", "sha256:abc"])
def test_a_place_never_enters_a_key(accepted, named):
    given = ("offline_kd.trajectory_source=persisted", f"offline_kd.dataset_path={named}")
    with pytest.raises(RecipeError, match="names no content"):
        adopted_dataset_spec(accepted(*OFFLINE, *given).recipe)
