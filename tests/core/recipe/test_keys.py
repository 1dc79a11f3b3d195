import pytest

from core.recipe import keys
from core.recipe.execution import EXECUTION_KEYS


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("trian", ["train"]),
        ("train.cycels", ["train.cycles"]),
        ("cache.dtyp", ["cache.dtype"]),
        ("run.nmae", ["run.name"]),
        ("runtime.slts", ["runtime.slots"]),
        ("loss.learning_rate", ["cold_start.learning_rate", "train.learning_rate"]),
        ("selection.weight_decay", ["train.weight_decay"]),
        ("zzzzzz", []),
    ],
)
def test_nearest_key(written, meant):
    assert keys.nearest(written) == meant


def test_neighbours_include_execution_keys():
    assert {"r", "alpha", "dropout"} <= set(keys.siblings("models.student.lora.x"))
    assert {"run", "memory", "cache", "cold_start", "runtime"} <= set(keys.siblings("x"))
    assert {"name", "seed", "output_dir"} <= set(keys.siblings("run.x"))


def test_sections_are_told_from_keys():
    assert keys.is_section("memory")
    assert keys.is_section("models.teacher.toy")
    assert not keys.is_section("train.cycles")
    assert not keys.is_section("nothing")


def test_explanation_has_meaning_and_bounds():
    assert keys.explain("rollout.max_turns") == (
        "Turns of the student before the episode is cut (≥ 1, ≤ 64)."
    )
    assert keys.explain("nothing") == ""


def test_no_key_is_both_identity_and_execution():
    assert set(keys.recipe_keys()).isdisjoint(EXECUTION_KEYS)
    assert len(keys.submitted_keys()) == len(set(keys.submitted_keys()))
