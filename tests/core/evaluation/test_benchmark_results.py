import csv
import json

import pandas as pd
import pytest

from core.evaluation.benchmark_results import ArmResult, identical_arms, read_results, write_results
from core.recipe.benchmark_specs import ArmLabel, BenchmarkSpec, CellSpec

SEEDS = (1, 2)


def spec(*names):
    return BenchmarkSpec(
        name="b",
        description="",
        digest="d" * 64,
        arms=tuple(
            ArmLabel(
                name=name, description="", method="m", objective="o", states="fresh", differs=()
            )
            for name in names
        ),
        seeds=SEEDS,
        baseline=names[0],
        budget_axis="optimizer_steps",
        budget_limit=None,
        eval_split="test",
        comparisons=tuple((name, names[0]) for name in names[1:]),
        alpha=0.05,
        looks=1,
        cells=tuple(CellSpec(arm=name, seed=seed, role=None) for seed in SEEDS for name in names),
    )


def result(success, digest="x"):
    rows = [
        {"task_id": f"t{place}", "sample": 0, "success": one, "turns": 2}
        for place, one in enumerate(success)
    ]
    totals = {"optimizer_steps": 3, "episodes": 8, "selected_tokens": 9, "budget": None}
    return ArmResult(rows, [{"stage": "after OPD"}], totals, {"arm": digest})


@pytest.fixture
def done():
    return {
        ("a", 1): result([True, False]),
        ("b", 1): result([True, True], "y"),
        ("a", 2): result([False, False], "z"),
    }


def test_rows_are_the_same_in_every_form(done, tmp_path):
    write_results(tmp_path, spec("a", "b"), done)
    found = read_results(tmp_path)
    with (tmp_path / "rows.csv").open() as stream:
        table = list(csv.DictReader(stream))
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert len(found.rows) == len(table) == len(frame) == 6
    assert (
        list(frame.columns)
        == list(table[0])
        == [*("arm", "seed", "method", "task_id", "sample", "success", "turns")]
    )
    assert found.rows[0] == {
        **{"arm": "a", "seed": 1, "method": "m", "task_id": "t0", "sample": 0},
        **{"success": True, "turns": 2},
    }
    assert found.successes()["b"] == {1: {"t0": 1.0, "t1": 1.0}}


def test_a_document_says_what_is_missing_and_what_was_solved(done, tmp_path):
    document = write_results(tmp_path, spec("a", "b"), done)
    assert document["missing"] == [{"arm": "b", "seed": 2}]
    assert [one["success_rate"] for one in document["results"]] == [0.5, 1.0, 0.0]
    assert json.loads((tmp_path / "results.json").read_text()) == document


def test_without_a_result_there_is_still_a_table(tmp_path):
    document = write_results(tmp_path, spec("a"), {})
    assert document["results"] == []
    assert read_results(tmp_path).rows == []


def test_arms_are_identical_where_every_artifact_is_on_every_seed(done):
    twins = {("a", 1): result([True]), ("b", 1): result([True]), ("c", 1): result([True])}
    rest = {("a", 2): result([True], "q"), ("b", 2): result([True], "q")}
    assert identical_arms(spec("a", "b", "c"), twins | rest) == [["a", "b"]]
    assert identical_arms(spec("a", "b", "c"), twins) == []
    assert identical_arms(spec("a", "b"), done) == []
