from typing import get_args

import pytest

from core.models.toy_fragments import FRAGMENTS
from core.recipe import model_steps
from core.recipe.specs import TokenizerSpec

HF = ("models.backend=hf",)


def test_every_vocabulary_can_be_named_but_the_calculator_s_which_is_the_default():
    named = get_args(get_args(TokenizerSpec.model_fields["vocabulary"].annotation)[0])
    assert {*named, "calculator"} == {*FRAGMENTS}


@pytest.mark.parametrize(
    ("vocabulary", "named"),
    [("null", None), ("calculator", None), ("worlds", "worlds"), ("recovery", "recovery")],
)
def test_a_toy_pair_shares_the_vocabulary_that_the_recipe_names(accepted, vocabulary, named):
    recipe = accepted(f"models.toy_vocabulary={vocabulary}").recipe
    pair = (recipe.models.student, recipe.models.teacher)
    specs = [model_steps.tokenizer_spec(recipe, model) for model in pair]
    assert [spec.vocabulary for spec in specs] == [named, named]


def test_an_arithmetic_that_is_not_quantised_forgets_the_settings_of_one_that_is(accepted):
    plain, changed = accepted(*HF), accepted(*HF, "models.student.prepare_kbit_training=false")
    spec = model_steps.student_spec(plain.recipe)
    assert spec == model_steps.student_spec(changed.recipe)
    assert (spec.model.quantization, spec.model.prepare_kbit_training) == (None, None)


def test_a_disabled_adapter_trains_every_weight_and_forgets_its_other_settings(accepted):
    off = (*HF, "models.student.lora.enabled=false")
    plain, ranked = accepted(*off).recipe, accepted(*off, "models.student.lora.r=4").recipe
    trained = model_steps.student_spec(plain).lora
    assert trained is not None
    assert not trained.enabled
    assert model_steps.student_spec(ranked) == model_steps.student_spec(plain)
    assert model_steps.student_spec(accepted().recipe).lora is None


def test_a_reference_is_the_student_s_base_and_part_of_the_update_alone(accepted, changed):
    roles = (
        *(*HF, "models.runtime=shared_backbone", "models.teacher.adapter.path=t"),
        *(f"models.{role}.model_id=base" for role in ("student", "teacher")),
    )
    adapter = "models.reference.adapter"
    third = (
        *("models.reference.model_id=base", f"{adapter}.path=a"),
        *(f"{adapter}.base_model_revision=b", f"{adapter}.tokenizer_fingerprint=c"),
    )
    plain, compared = accepted(*roles).recipe, accepted(*roles, *third).recipe
    assert changed(plain, compared) == {"update"}
    assert model_steps.reference_spec(plain) is None
    own = model_steps.student_spec(compared).model
    assert model_steps.reference_spec(compared) == own.model_copy(update={"adapter": "a"})
