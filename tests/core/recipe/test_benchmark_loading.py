from pathlib import Path

import pytest

from core.errors import RecipeError
from core.recipe.benchmark_loading import is_benchmark, load_benchmark, read_benchmark
from core.recipe.loading import load_recipe

SHIPPED = sorted(Path("recipes/benchmarks").glob("*.yaml"))
SMALL = "name: small\nbase: {base}\nseeds: [1]\narms: [{{name: opd}}]\n"


@pytest.fixture
def written(tmp_path):
    """Return f(text): a benchmark file that has a base beside it."""
    (tmp_path / "toy.yaml").write_text(Path("recipes/toy.yaml").read_text())

    def write(text=SMALL):
        path = tmp_path / "small.yaml"
        path.write_text(text.format(base="toy.yaml"))
        return path

    return write


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_benchmark_loads(path):
    grid = load_benchmark(path)
    assert is_benchmark(path)
    assert len(grid.cells) == len(grid.arms) * len(grid.benchmark.seeds) >= 5


def test_the_toy_benchmark_has_every_kind_of_arm():
    grid = load_benchmark("recipes/benchmarks/toy.yaml")
    assert len(grid.arms) >= 5
    assert len(grid.benchmark.seeds) >= 3
    modes = {(cell.recipe.run.mode, cell.recipe.train.opd_freshness) for cell in grid.cells}
    assert modes == {
        ("opd", "strict"),
        ("opd", "replay"),
        ("sft", "strict"),
        ("offline_kd", "strict"),
    }


def test_a_recipe_is_no_benchmark():
    assert not is_benchmark("recipes/toy.yaml")
    assert not is_benchmark("recipes/none.yaml")


def test_a_recipe_and_a_benchmark_in_each_others_place_are_pointed_to_their_commands():
    with pytest.raises(RecipeError, match=r"toy.yaml: is a recipe.*\nRun `opd run recipes/toy.y"):
        load_benchmark("recipes/toy.yaml")
    path = "recipes/benchmarks/smoke.yaml"
    with pytest.raises(RecipeError, match=rf"is a benchmark.*\nRun `opd benchmark {path}`"):
        load_recipe(path)


def test_the_base_is_found_beside_the_benchmark(written):
    assert load_benchmark(written()).common[1].recipe.environment.name == "calculator"


def test_overrides_change_the_benchmark_or_what_its_arms_share(written):
    overrides = ["seeds=[4, 5]", "train.cycles=3", "runtime.slots=2", "cold_start.cycles=9"]
    grid = load_benchmark(written(), overrides)
    assert grid.benchmark.seeds == (4, 5)
    assert {cell.recipe.train.cycles for cell in grid.cells} == {3}
    assert grid.runtime.slots == 2
    assert grid.cells[0].recipe.cold_start.cycles == 9


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (SMALL + "sedes: [1]\n", "5: sedes: there is no such key", "seeds"),
        ("name: x\nseeds: [1]\narms: [{{name: a}}]\n", "base: is required and missing", "Add it"),
        (SMALL.replace("name: opd", "nmae: opd"), "arms", ""),
        (SMALL.replace("[1]", "[x]"), "seeds", "another value"),
        (SMALL.replace("{base}", "none.yaml"), "no such recipe", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_line(written, text, message, hint):
    with pytest.raises(RecipeError) as caught:
        load_benchmark(written(text))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_file_that_is_not_there_is_an_input_error(tmp_path):
    with pytest.raises(RecipeError, match="no benchmark can be read there"):
        read_benchmark(tmp_path / "none.yaml")


@pytest.mark.parametrize(("name", "cold_cycles"), [("recovery_toy", 300), ("recovery_qwen", 24)])
def test_recovery_benchmarks_load_without_models(name, cold_cycles):
    grid = load_benchmark(f"recipes/benchmarks/{name}.yaml")
    assert [arm.name for arm in grid.arms] == [
        *("cold-start-only", "continued-sft", "offline-kd-oracle", "offline-kd-frozen-student"),
        *("strict-opd-fresh", "strict-opd-fresh-budget50"),
    ]
    assert len(grid.benchmark.seeds) == 3
    assert grid.comparisons[0] == ("strict-opd-fresh", "offline-kd-frozen-student")
    cell = next(one for one in grid.cells if one.arm == "strict-opd-fresh-budget50")
    assert (cell.recipe.selection.selector, cell.recipe.selection.ratio) == ("uniform_budget", 0.5)
    assert cell.recipe.environment.name == "sqlite_recovery"
    assert (cell.recipe.train.cycles, cell.cold.cold_start.cycles) == (8, cold_cycles)
    assert grid.benchmark.published is not None


def test_the_toy_recovery_benchmark_draws_a_schema_per_database_and_has_a_gate():
    recipe = load_benchmark("recipes/benchmarks/recovery_toy.yaml").cells[0].recipe
    assert recipe.environment.params == {"prompt_style": "compact", "schemas": "mixed"}
    assert recipe.models.toy_vocabulary == "recovery"
    assert recipe.models.teacher.qualification.split == "eval"


def test_the_qwen_recovery_benchmark_has_the_published_setting():
    recipe = load_benchmark("recipes/benchmarks/recovery_qwen.yaml").cells[0].recipe
    world = recipe.environment
    assert (world.train_tasks, world.eval_tasks, world.test_tasks) == (256, 96, 128)
    assert world.split_seed == 20260801
    models = recipe.models
    assert (models.student.quantization, models.teacher.quantization) == ("nf4", "nf4")
    assert models.teacher.adapter.minimum_strict_success_rate == 0.8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("comparisons=[[strict-opd,nobody]]", "comparisons: nobody: there is no such arm"),
        ("comparisons=[[strict-opd,strict-opd]]", "compared with itself"),
        ("statistics.alpha=2", "statistics.alpha"),
        ("statistics.look=2", "Did you mean looks"),
        ("published.pages=2", "published.source: is required|there is no such key"),
    ],
)
def test_a_benchmark_that_cannot_be_judged_so_is_refused(change, words):
    with pytest.raises(RecipeError, match=words):
        load_benchmark("recipes/benchmarks/smoke.yaml", [change])


def test_published_arms_must_be_arms_of_the_benchmark(written):
    path = written(SMALL + "published: {{source: s, arms: [{{arm: nobody}}]}}\n")
    with pytest.raises(RecipeError, match=r"published\.arms: nobody: there is no such arm"):
        load_benchmark(path)


def test_how_it_is_judged_is_in_the_digest_where_it_is_not_the_default():
    def digest(*changes):
        return load_benchmark("recipes/benchmarks/smoke.yaml", ["seeds=[1]", *changes]).digest

    plain = digest()
    assert digest("statistics.alpha=0.05", "published.source=someone") == plain
    others = {digest("statistics.looks=3"), digest("comparisons=[[strict-opd,sft-continued]]")}
    assert len({plain, *others}) == 3
