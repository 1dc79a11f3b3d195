from pathlib import Path

import pytest
import yaml

from core.errors import RecipeError
from core.recipe.benchmark import Arm
from core.recipe.benchmark_labels import SET_BY_BENCHMARK, all_arms, check_labels
from core.recipe.benchmark_loading import load_benchmark, read_benchmark
from core.recipe.keys import fields

SMOKE = "recipes/benchmarks/smoke.yaml"
TOY = Path("recipes/toy.yaml").absolute()
PAIR = {"arm": "strict-opd", "against": "sft-continued"}


@pytest.fixture
def accepted():
    """Return f(changes): the labels of the smoke benchmark, with these keys changed, are fine."""

    def check(**changes):
        benchmark = read_benchmark(SMOKE).model_copy(update=changes)
        check_labels(benchmark, all_arms(benchmark))
        return True

    return check


@pytest.fixture
def grid(tmp_path):
    """Return f(changes): the grid of the smoke benchmark with these keys of its file changed."""

    def load(**changes):
        document = yaml.safe_load(Path(SMOKE).read_text()) | {"base": str(TOY)} | changes
        path = tmp_path / "changed.yaml"
        path.write_text(yaml.safe_dump(document))
        return load_benchmark(path)

    return load


# ---------------------------------------------------------------- golden


def test_a_point_of_a_sweep_is_called_after_its_values(grid):
    arms = grid(sweep={"loss.top_k": [4, 8]}).arms
    assert [arm.name for arm in arms[-2:]] == ["top_k=4", "top_k=8"]


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "loss.*", "loss.divergence", "train.max_*", "models.*.toy.*", "runtime.slots"),
        *("cold_start", "cold_start.*", "models.teacher.adapter", "environment.params.depth"),
    ],
)
def test_a_difference_may_be_a_key_a_section_or_a_key_of_a_mapping(accepted, pattern):
    assert accepted(allowed_differences=(pattern,))


def test_keys_that_a_benchmark_sets_exist():
    assert SET_BY_BENCHMARK.keys() - {"run.name", "run.run_id"} <= fields().keys()


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("loss.divergance", "loss.divergence"),
        ("los.*", r"loss\.\*"),
        ("loss", r"loss\.\*"),
        ("", "dotted keys"),
    ],
)
def test_a_difference_that_no_recipe_can_have_is_a_slip_of_the_pen(accepted, pattern, hint):
    with pytest.raises(RecipeError, match=hint):
        accepted(allowed_differences=("run.mode", pattern))


@pytest.mark.parametrize("key", SET_BY_BENCHMARK)
def test_keys_that_the_benchmark_sets_are_refused_and_not_overwritten_in_silence(accepted, key):
    with pytest.raises(RecipeError, match=f"arm x: {key}: is set by the benchmark"):
        accepted(arms=(Arm(name="x", overrides={key: 1}),), baseline="x")
    with pytest.raises(RecipeError, match=f"common_overrides: {key}"):
        accepted(common_overrides={key: 1})
    section, _, name = key.partition(".")
    with pytest.raises(RecipeError, match="is set by the benchmark"):
        accepted(common_overrides={section: {name: 1}})


@pytest.mark.parametrize(
    "second", [("strict-opd", "sft-continued"), ("sft-continued", "strict-opd")]
)
def test_a_pair_counts_once_in_its_family_whichever_way_round(accepted, second):
    with pytest.raises(RecipeError, match="sft-continued and strict-opd is there twice"):
        accepted(comparisons=(("strict-opd", "sft-continued"), second))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sweep": {"models.teacher.model_id": ["a/b"]}}, "cannot be the name of an arm"),
        ({"budget": {"axis": "selected_training_tokens", "limit": 10.7}}, "counted whole"),
        ({"budget": {"axis": "selected_training_tokens", "limit": 10**9}}, r"more than arm .* can"),
        ({"seeds": [-1]}, r"seeds\.0"),
        ({"seeds": 3}, "must be a list"),
        ({"published": {"source": "s", "arms": [{"arm": "a", "sucess": 1}]}}, "mean success"),
        (
            {
                "published": {
                    "source": "s",
                    "comparisons": [PAIR | {"effect": 0, "lower": 0.5, "upper": -0.5}],
                }
            },
            r"0\.0 is not between 0\.5 and -0\.5",
        ),
    ],
)
def test_a_slip_in_the_file_is_not_taken_for_an_order(grid, changes, words):
    with pytest.raises(RecipeError, match=words):
        grid(**changes)


@pytest.mark.parametrize(("typed", "meant"), [("seed=[1]", "seeds"), ("baselin=a", "baseline")])
def test_a_slip_on_the_command_line_is_told_what_it_may_mean(typed, meant):
    with pytest.raises(RecipeError, match=f"Did you mean {meant}"):
        load_benchmark(SMOKE, [typed])


def test_tasks_of_equal_names_that_are_not_the_same_are_no_pairs(grid):
    def arms(key: str) -> dict[str, object]:
        own = [{"name": "a"}, {"name": "b", "overrides": {key: 9}}]
        return {"arms": own, "baseline": "a", "allowed_differences": ["environment.*"]}

    # An earlier split of another size has other prompts, which the measured one passes over.
    for key in ("environment.split_seed", "environment.train_tasks"):
        with pytest.raises(RecipeError, match="arm b, seed 1: is measured on other tasks"):
            grid(**arms(key))


@pytest.mark.parametrize("budget", [{}, {"axis": "selected_training_tokens", "limit": 60}])
def test_no_arm_has_a_budget_of_its_own(grid, budget):
    own = {"train.max_selected_training_tokens": 30}
    arms = [{"name": "a"}, {"name": "b", "overrides": own}]
    with pytest.raises(RecipeError, match=r"arm b, seed 1: .* would end the arm elsewhere"):
        grid(arms=arms, baseline="a", allowed_differences=["train.*"], budget=budget)
