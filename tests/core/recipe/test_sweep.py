import pytest

from core.errors import RecipeError
from core.recipe.sweep import grid, load_grid


def test_last_axis_varies_fastest():
    assert grid({"run.seed": [0, 1], "loss.divergence": ["jsd", "forward_kl"]}) == [
        ("run.seed=0", 'loss.divergence="jsd"'),
        ("run.seed=0", 'loss.divergence="forward_kl"'),
        ("run.seed=1", 'loss.divergence="jsd"'),
        ("run.seed=1", 'loss.divergence="forward_kl"'),
    ]


def test_no_axis_is_one_point():
    assert grid({}) == [()]


def test_axis_without_values_is_refused():
    with pytest.raises(RecipeError, match=r"sweep over run.seed has no values"):
        grid({"run.seed": []})


def test_grid_loads_every_point(minimal, tmp_path):
    path = tmp_path / "minimal.yaml"
    path.write_text(minimal)
    axes = {"train.learning_rate": [1e-5, 0.5], "selection.max_positions_per_trajectory": [None, 3]}
    points = [loaded.recipe for loaded in load_grid(path, axes, ["run.seed=7"])]
    assert [point.train.learning_rate for point in points] == [1e-5, 1e-5, 0.5, 0.5]
    assert [point.selection.max_positions_per_trajectory for point in points] == [None, 3, None, 3]
    assert {point.run.seed for point in points} == {7}


def test_refused_point_names_its_override(minimal, tmp_path):
    path = tmp_path / "minimal.yaml"
    path.write_text(minimal)
    with pytest.raises(RecipeError, match=r"override 'loss.top_k=0'"):
        load_grid(path, {"loss.top_k": [1, 0]})
