import json
from pathlib import Path

import pytest

from core.errors import RecipeError
from core.recipe.benchmark import Benchmark
from core.recipe.benchmark_grid import declared, differences, make_grid, planned_steps
from core.recipe.loading import load_recipe
from core.recipe.objective import trained_states
from core.recipe.steps import cold_start_spec

BASE = str(Path("recipes/toy.yaml").absolute())
ALLOWED = ("run.mode", "train.cycles", "offline_kd.*")
ARMS = (
    {"name": "cold", "overrides": {"train.cycles": 0}},
    {"name": "sft", "overrides": {"run.mode": "sft"}},
    {"name": "kd", "overrides": {"run": {"mode": "offline_kd"}}},
    {"name": "opd"},
)

WARM = load_recipe("recipes/toy.yaml", ["cold_start=null", "train.sft_warmup_cycles=2"])
WARM = WARM.model_dump(mode="json")


@pytest.fixture
def grid():
    """Return f(changes): the grid of four arms on two seeds."""

    def make(**changes):
        given = {
            "name": "four",
            "base": BASE,
            "seeds": [1, 2],
            "arms": ARMS,
            "allowed_differences": ALLOWED,
            "common_overrides": {"train.cycles": 5},
            **changes,
        }
        return make_grid(Benchmark.model_validate(given))

    return make


# ---------------------------------------------------------------- golden


def test_a_grid_has_a_recipe_for_every_arm_on_every_seed(grid):
    found = grid()
    assert [cell.name for cell in found.cells] == [
        f"{arm['name']}/seed-{seed}" for seed in (1, 2) for arm in ARMS
    ]
    assert [cell.recipe.run.seed for cell in found.cells] == [1] * 4 + [2] * 4
    assert {cell.recipe.eval.split for cell in found.cells} == {"test"}
    assert not any(cell.recipe.report.enabled for cell in found.cells)
    assert [planned_steps(cell.recipe) for cell in found.cells[:4]] == [0, 5, 5, 5]
    assert found.baseline == "cold"
    assert {cell.recipe.cold_start for cell in found.cells} == {found.common[1].recipe.cold_start}


def test_an_arm_says_whose_states_it_trains_on_and_what_it_changes(grid):
    frozen = {"run.mode": "offline_kd", "offline_kd.trajectory_source": "frozen_student"}
    replay = {"train.opd_freshness": "replay", "train.gradient_accumulation_steps": 16}
    arms = [*ARMS, {"name": "frozen", "overrides": frozen}, {"name": "again", "overrides": replay}]
    found = grid(
        arms=arms,
        allowed_differences=(*ALLOWED, "train.*"),
        budget={"axis": "selected_training_tokens", "limit": 100},
        seeds=[1],
    )
    states = {cell.arm: trained_states(cell.recipe) for cell in found.cells}
    assert states == {
        **{"cold": "none", "sft": "oracle", "kd": "oracle", "opd": "fresh"},
        **{"frozen": "frozen student", "again": "replayed"},
    }
    changes = {cell.arm: declared(cell, found.common[1]) for cell in found.cells}
    assert changes["opd"] == ()
    assert changes["frozen"] == (
        ("offline_kd.trajectory_source", '"oracle"', '"frozen_student"'),
        ("run.mode", '"opd"', '"offline_kd"'),
    )


def test_a_base_may_be_written_out_and_a_cold_start_changed(grid):
    recipe = grid().common[1].recipe.model_dump(mode="json")
    found = grid(base=recipe, cold_start={"cycles": 7})
    assert {cell.recipe.cold_start.cycles for cell in found.cells} == {7}


def test_arms_that_select_otherwise_begin_from_the_common_cold_start(grid):
    arms = [
        {"name": "all"},
        {"name": "some", "overrides": {"selection.selector": "tool_and_final"}},
        {"name": "own", "overrides": {"cold_start": {"cycles": 2}}},
    ]
    found = grid(arms=arms, allowed_differences=["selection.*", "cold_start.*"])
    same, some, own = (cold_start_spec(cell.cold) for cell in found.cells[:3])
    assert same == some
    assert cold_start_spec(found.cells[1].recipe) != some
    assert (same.cycles, own.cycles) == (110, 2)


def test_a_sweep_adds_an_arm_per_point_and_declares_its_keys(grid):
    found = grid(sweep={"loss.top_k": [4, 8], "loss.divergence": ["forward_kl"]})
    assert [arm.name for arm in found.arms[4:]] == [
        "top_k=4+divergence=forward_kl",
        "top_k=8+divergence=forward_kl",
    ]
    assert found.cells[5].recipe.loss.top_k == 8


@pytest.mark.parametrize(
    ("axis", "limit", "key"),
    [
        ("selected_training_tokens", 5000, "max_selected_training_tokens"),
        ("wall_time", 2.5, "max_wall_seconds"),
    ],
)
def test_a_budget_view_is_a_budget_of_every_arm(grid, axis, limit, key):
    found = grid(budget={"axis": axis, "limit": limit})
    assert {getattr(cell.recipe.train, key) for cell in found.cells} == {limit}


def test_the_digest_is_of_what_decides_a_number(grid):
    assert grid().digest == grid(description="other words").digest
    assert grid().digest == grid(common_overrides={"train.cycles": 5, "run.notes": "x"}).digest
    assert grid().digest != grid(seeds=[1, 3]).digest
    assert grid().digest != grid(baseline="sft").digest


def test_differences_are_named_leaf_by_leaf():
    found = differences({"a": {"b": 1, "c": 2}, "d": None}, {"a": {"b": 1, "c": 3}, "d": {}})
    assert sorted(found) == [("a.c", 2, 3), ("d", None, {})]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"allowed_differences": ALLOWED[:1]}, r"arm cold, seed 1 .* train\.cycles \(5 → 0\)"),
        ({"arms": [{"name": "a"}, {"name": "a"}]}, "arms: a is there twice"),
        ({"seeds": [4, 4]}, "seeds: 4 is there twice"),
        ({"arms": []}, "arms: is empty"),
        ({"baseline": "x"}, "baseline = x: there is no such arm"),
        ({"budget": {"axis": "wall_time"}}, r"budget\.limit: is missing"),
        ({"budget": {"limit": 3}}, r"budget\.limit: has no meaning"),
        ({"common_overrides": {"train.cycels": 1}}, "train.cycels"),
        ({"common_overrides": {"eval.enabled": False}}, "eval.enabled is false"),
        (
            {"base": WARM, "arms": [{"name": "a"}]},
            "sft_warmup_cycles hands over an optimizer",
        ),
        (
            {"arms": [{"name": "a", "overrides": {"train.opd_freshness": "x"}}]},
            r"arm a, seed 1: .*opd_freshness",
        ),
        (
            {"arms": [{"name": "a"}, {"name": "b", "overrides": {"train.cycles": 6}}]},
            "arm b takes 6 optimizer steps and arm a 5",
        ),
        ({"budget": {"axis": "generated_tokens", "limit": 9}}, "arm sft, seed 1: .*samples none"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(grid, changes, message):
    with pytest.raises(RecipeError, match=message) as caught:
        grid(**changes)
    assert caught.value.hint


def test_execution_may_not_differ_either(grid):
    arms = [{"name": "a", "overrides": {"runtime.chunk_size": 64}}]
    with pytest.raises(RecipeError, match=r"runtime\.chunk_size \(256 → 64\)"):
        grid(arms=arms)


def test_a_benchmark_survives_json(grid):
    text = grid().benchmark.model_dump_json()
    assert Benchmark.model_validate(json.loads(text)) == grid().benchmark
