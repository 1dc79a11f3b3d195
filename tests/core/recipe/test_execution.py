from core.recipe.execution import EXECUTION_KEYS, EXECUTION_SECTIONS
from core.recipe.keys import fields
from core.recipe.recipe import Recipe


def test_every_execution_key_has_a_field_of_its_own():
    targets = [f"runtime.{field}" for field in EXECUTION_KEYS.values()]
    assert len(set(targets)) == len(targets) == 33
    assert set(targets) <= set(fields())


def test_every_inherited_field_has_a_key():
    inherited = {key for key in fields() if key.startswith("runtime.inherited.")}
    assert inherited <= {f"runtime.{field}" for field in EXECUTION_KEYS.values()}


def test_sections_without_identity_are_exactly_those_named():
    heads = {key.split(".")[0] for key in EXECUTION_KEYS}
    assert heads - set(Recipe.model_fields) == set(EXECUTION_SECTIONS)
