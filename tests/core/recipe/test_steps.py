import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.recipe import steps
from core.recipe.loading import load_text

HF = ("models.backend=hf",)


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


def test_practice_can_begin_behind_the_demonstrations(accepted):
    recipe = accepted("train.first_task=96").recipe
    assert [steps.rollout_spec(recipe, cycle).task_cursor for cycle in (0, 1)] == [96, 104]


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


def test_toy_models_are_identified_without_their_labels(accepted, changed):
    left, right = accepted().recipe, accepted("models.student.model_id=other").recipe
    assert changed(left, right) == set()


def test_traces_of_a_pretrained_model_use_its_tokenizer(accepted):
    tokenizer = steps.traces_spec(accepted(*HF, "models.student.revision=r").recipe).tokenizer
    assert (tokenizer.tokenizer_id, tokenizer.revision) == ("toy-student", "r")


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
