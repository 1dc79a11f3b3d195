from typing import get_args

import pytest

from core.losses.options import ObjectiveOptions
from core.losses.registry import OBJECTIVES
from core.recipe import objective, steps
from core.recipe.schema.loss import Divergence, LossMode, ObjectiveName

TOKEN_MEAN = "loss.aggregation=token-mean"
TOP_K = ("loss.divergence=forward_kl", "loss.scale_by_temperature_squared=false", TOKEN_MEAN)
VERL = {"forward_kl_topk": TOP_K, "verl_pg_k1": (TOKEN_MEAN,)}
CROSS = "loss.cross_tokenizer=true"
NEEDED = {**VERL, "shared_vocab": (CROSS,)}


@pytest.fixture
def specs(accepted):
    """Score and update spec of a recipe."""

    def build(*overrides):
        recipe = accepted(*overrides).recipe
        return steps.score_spec(recipe), steps.update_spec(recipe, 0)

    return build


def test_every_registered_objective_can_be_named_in_a_recipe_and_no_other():
    assert set(get_args(ObjectiveName)) == set(OBJECTIVES)
    assert set(get_args(ObjectiveName)) == {*get_args(Divergence), *VERL}


def test_every_number_of_an_objective_is_a_number_of_the_update():
    named = {objective.RENAMED.get(key, key) for key in objective.READERS}
    shared = {
        "temperature",
        "teacher_temperature",
        "scale_by_temperature_squared",
        "tail_epsilon",
        "union_top_k",
    }
    assert named | shared == set(ObjectiveOptions.__dataclass_fields__)


@pytest.mark.parametrize("name", get_args(Divergence))
@pytest.mark.parametrize(
    "mode", ["exact_full_vocab", "bucketed_topk_tail", "union_topk", "shared_vocab"]
)
def test_an_update_carries_only_the_numbers_that_its_objective_reads(specs, mode, name):
    _, update = specs(f"loss.mode={mode}", f"loss.divergence={name}", *NEEDED.get(mode, ()))
    assert update.divergence == name
    for key, readers in objective.READERS.items():
        value = getattr(update, objective.RENAMED.get(key, key))
        assert (value is not None) == (name in readers)
    assert (update.tail_epsilon is None) == (mode == "exact_full_vocab")
    assert update.union_top_k == (64 if mode == "union_topk" else None)


@pytest.mark.parametrize("mode", VERL)
def test_a_mode_of_verls_is_an_objective_by_itself(specs, mode):
    score, update = specs(f"loss.mode={mode}", *NEEDED[mode])
    assert update.divergence == mode
    assert update.tail_epsilon is None
    assert score.top_k == (64 if mode == "forward_kl_topk" else None)


@pytest.mark.parametrize("mode", get_args(LossMode))
def test_modes_that_are_told_the_same_share_their_targets(specs, mode):
    told = objective.HANDED_OVER[mode]
    score, _ = specs(f"loss.mode={mode}", *NEEDED.get(mode, ()))
    assert (score, score.loss_mode) == (
        specs(f"loss.mode={told}", *NEEDED.get(told, ()))[0],
        told,
    )


def test_sampling_loss_and_teacher_temperature_are_three_numbers(specs, accepted):
    """C49: a rollout at 0.7 makes no other number 0.7."""
    score, update = specs("rollout.temperature=0.7")
    assert (score.temperature, update.temperature, update.teacher_temperature) == (1.0, 1.0, None)
    given = ("rollout.temperature=0.7", "loss.temperature=2", "loss.teacher_temperature=0.5")
    score, update = specs(*given)
    assert (score.temperature, update.temperature, update.teacher_temperature) == (0.5, 2.0, 0.5)
    rollout = steps.rollout_spec(accepted(*given).recipe, 0)
    assert rollout.sampling.temperature == 0.7


@pytest.mark.parametrize("mode", objective.HIDDEN_STATES)
def test_whole_distributions_are_handed_over_without_a_temperature(specs, mode):
    given = (f"loss.mode={mode}", "loss.teacher_temperature=0.5", *NEEDED.get(mode, ()))
    score, update = specs(*given)
    assert (score.temperature, update.teacher_temperature) == (None, 0.5)


def test_a_teacher_s_temperature_equal_to_the_loss_s_is_none_of_its_own(specs):
    assert specs("loss.temperature=2") == specs("loss.temperature=2", "loss.teacher_temperature=2")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("loss.mode=union_topk", "loss.top_k=8"), "reverse_kl over top-8 of either side + tail"),
        (
            ("loss.mode=shared_vocab", CROSS),
            "reverse_kl over the tokens that both vocabularies share + rest",
        ),
        (("loss.mode=verl_pg_k1", TOKEN_MEAN), "verl_pg_k1 over the sampled tokens"),
        (("loss.mode=forward_kl_topk", *TOP_K), "forward_kl_topk over top-64 without a tail"),
    ],
)
def test_an_objective_is_said_in_words(accepted, overrides, words):
    assert objective.phrase(accepted(*overrides).recipe.loss) == words
