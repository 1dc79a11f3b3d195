import pytest

from core.recipe.notes import IDLE

VALUES = {
    "selection.ratio": "selection.ratio=0.5",
    "loss.jsd_beta": "loss.jsd_beta=0.3",
    "loss.log_prob_min_clamp": "loss.log_prob_min_clamp=-5",
    "loss.loss_max_clamp": "loss.loss_max_clamp=5",
    "loss.clip_ratio": "loss.clip_ratio=0.3",
    "loss.clip_ratio_low": "loss.clip_ratio_low=0.3",
    "loss.clip_ratio_high": "loss.clip_ratio_high=0.3",
    "loss.clip_ratio_c": "loss.clip_ratio_c=5",
    "loss.estimator_implementation_version": "loss.estimator_implementation_version=1",
    "run.deterministic": "run.deterministic=false",
    "eval.seed": "eval.seed=3",
}
WITH_MODE = {
    "loss.tail_epsilon": ("loss.mode=exact_full_vocab", "loss.tail_epsilon=1e-6"),
    "loss.divergence": ("run.mode=sft", "loss.divergence=jsd"),
    "train.opd_freshness": ("run.mode=sft", "train.opd_freshness=replay"),
    "train.eval_every_cycles": ("run.mode=sft", "train.eval_every_cycles=2"),
}


def test_plain_recipe_needs_no_note(accepted):
    assert accepted().notes == []


@pytest.mark.parametrize("key", IDLE)
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
        ("loss.tail_epsilon=1e-6",),
        ("eval.seed=3", "eval.temperature=1"),
    ],
)
def test_key_with_effect_is_not_noted(accepted, overrides):
    assert accepted(*overrides).notes == []


def test_settings_and_inert_keys_are_listed_apart(accepted):
    found = accepted("memory.strategy=resident", "cache.keep_cycles=2", "run.name=x").notes
    assert found == [
        "execution settings, no part of identity: memory.strategy",
        "accepted, without effect here: cache.keep_cycles",
    ]


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
    ],
)
def test_warmup_longer_than_the_run_is_noted(accepted, overrides, count):
    assert len(accepted(*overrides).notes) == count


def test_measuring_on_training_tasks_is_noted(accepted):
    assert "trained on" in accepted("eval.split=train").notes[0]
