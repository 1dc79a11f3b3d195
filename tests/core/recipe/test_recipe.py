import pytest
from pydantic import ValidationError

from core.recipe.keys import fields, recipe_keys
from core.recipe.recipe import Recipe

SEED_SECTIONS = {
    *("run", "models", "source", "environment", "rollout", "selection", "loss", "train"),
    *("offline_kd", "eval", "report", "alignment"),
}


def test_number_of_knobs_is_a_decision():
    # A new key needs an entry in test_steps.py and a recipe that varies it; then raise this.
    assert len(recipe_keys()) == 216


def test_sections_are_those_of_the_seeds_and_the_cold_start():
    assert set(Recipe.model_fields) == {"schema_version", "cold_start", *SEED_SECTIONS}


def test_every_key_says_what_it_means():
    assert [key for key, field in fields().items() if not field.description] == []


def test_recipe_cannot_be_changed(accepted):
    with pytest.raises(ValidationError, match="frozen"):
        accepted().recipe.run.seed = 2


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("run.seed", 1234),
        ("models.student.lora.r", 16),
        ("models.student.lora.alpha", 32),
        ("models.student.toy.max_position_embeddings", 1024),
        ("models.teacher.toy_teacher_seed", 99),
        ("models.teacher.toy_pretrain_steps", 120),
        ("models.teacher.toy_pretrain_lr", 3e-3),
        ("environment.train_tasks", 64),
        ("environment.split_seed", 7),
        ("rollout.max_turns", 4),
        ("rollout.max_total_tokens", 768),
        ("selection.ratio", 0.35),
        ("loss.top_k", 64),
        ("loss.tail_epsilon", 1e-9),
        ("loss.clip_ratio_c", 3.0),
        ("train.learning_rate", 1e-4),
        ("train.adam_beta2", 0.95),
        ("train.adam_eps", 1e-8),
        ("eval.seed", 0),
        ("report.max_tokens_per_trajectory", 400),
    ],
)
def test_default(key, default):
    assert fields()[key].default == default


def test_exact_mode_normalises_an_omitted_top_k(accepted):
    assert accepted("loss.mode=exact_full_vocab").recipe.loss.top_k == 1
    assert accepted().recipe.loss.top_k == 64


@pytest.mark.parametrize("backend", ["toy", "hf"])
def test_automatic_precision_is_float32_without_looking_at_the_device(accepted, backend):
    models = accepted(f"models.backend={backend}", "models.student.dtype=auto").recipe.models
    assert models.student.dtype == models.teacher.dtype == "float32"
