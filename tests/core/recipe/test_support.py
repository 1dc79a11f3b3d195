import pytest

from core.environments import registry
from core.recipe.support import UNBUILT

ROWS = [(row, value) for row in UNBUILT for value in row.values or ("x",)]
INSIDE = {
    "models.student.adapter": "path",
    "models.teacher.adapter": "path",
    "alignment": "method",
}
DROPOUT = "models.student.lora.dropout"


@pytest.mark.parametrize(("row", "value"), ROWS)
def test_feature_that_does_not_exist_is_refused_by_name(refused, row, value):
    key = row.key
    written = f"{key}.{INSIDE[key]}" if key in INSIDE else key
    value = str(value).lower() if value is True else value
    error = refused(f"{written}={value}")
    lines = [line for line in str(error).splitlines() if f": {key}" in line]
    assert any("not built yet" in line for line in lines)


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_built_in_world_is_accepted(accepted, name):
    assert accepted(f"environment.name={name}").recipe.environment.name == name


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.opd_freshness=replay", "train.rollouts_per_cycle=16"),
        ("run.mode=sft",),
        ("models.teacher.mode=privileged_context",),
        ("models.reference=null",),
        ("models.backend=hf", f"{DROPOUT}=0.1"),
        ("models.backend=toy", f"{DROPOUT}=0.1"),
        ("models.student.quantization=none",),
        ("train.max_wall_seconds=5",),
        ("train.max_selected_training_tokens=5",),
        ("train.max_generated_tokens=5",),
    ],
)
def test_built_features_and_nulls_pass(accepted, overrides):
    assert accepted(*overrides).recipe is not None
