"""Benchmarks in one process, on the session's server."""

import json
from pathlib import Path

import pytest
from prefect.artifacts import Artifact

from core.errors import BenchmarkError, NumericsError, ServerError
from core.evaluation.benchmark_results import read_results
from core.recipe.benchmark_loading import load_benchmark

pytestmark = pytest.mark.server

SMOKE = Path("recipes/benchmarks/smoke.yaml")


@pytest.fixture
def run(prefect_server, tmp_path):
    """Run the smoke benchmark on one seed with some changes; returns its summary."""
    from flows.benchmark import benchmark

    def call(*changes, **options):
        place = [f"runtime.store={tmp_path / 'store'}", f"run.output_dir={tmp_path / 'runs'}"]
        grid = load_benchmark(SMOKE, [*place, "seeds=[1]", *changes])
        return benchmark(benchmark=grid.benchmark, **options)

    return call


def states(tmp_path):
    lines = json.loads((tmp_path / "runs/benchmark-smoke/status.json").read_text())
    return {line["arm"]: line["state"] for line in lines}


def test_a_failing_arm_stops_no_other_and_is_the_only_one_to_run_again(run, tmp_path, monkeypatch):
    from flows import benchmark_arm
    from flows.benchmarks import inline

    sound, entered = benchmark_arm.arm_graph, []

    def broken(recipe, *rest):
        entered.append(recipe.run.mode)
        if recipe.run.mode == "sft" and len(entered) < 5:
            raise NumericsError("the loss is not finite", "Lower the learning rate.")
        return sound(recipe, *rest)

    monkeypatch.setattr(benchmark_arm, "arm_graph", broken)
    assert inline.benchmark_arm is benchmark_arm.benchmark_arm
    with pytest.raises(BenchmarkError, match="1 of 5 runs failed: sft-continued on"):
        run()
    assert states(tmp_path) == {
        "cold-start-only": "done",
        "sft-continued": "failed",
        "offline-kd-oracle": "done",
        "strict-opd": "done",
        "strict-opd-again": "cached",
    }
    partial = read_results(tmp_path / "runs/benchmark-smoke")
    assert (tmp_path / "runs/benchmark-smoke/report.html").exists()
    assert {row["arm"] for row in partial.rows} == set(states(tmp_path)) - {"sft-continued"}
    entered.extend(["", ""])
    before = len(entered)
    summary = run()
    assert entered[before:] == ["sft"]
    assert (summary["answered_from_store"], summary["missing"]) == (4, [])
    assert summary["identical"] == [["strict-opd", "strict-opd-again"]]
    shown = {key: Artifact.get(f"opd-benchmark{key}") for key in ("", "-summary", "-report")}
    assert "One seed: no significance is claimed" in shown[""].description
    assert shown["-summary"].data.startswith("# smoke")
    assert Path(summary["report"]).as_uri() in shown["-report"].data
    made = Path(summary["result_path"])
    for name in ("comparison.json", "episodes.jsonl"):
        assert (tmp_path / "runs/benchmark-smoke" / name).read_bytes() == (made / name).read_bytes()
    before = len(entered)
    again = run()
    assert (again["computed"], again["answered_from_store"]) == (0, 5)
    assert len(entered) == before  # no arm's flow was entered
    assert again["result"] == summary["result"]


def test_a_failure_that_nobody_foresaw_is_two_lines_and_its_traceback_is_in_a_file(
    run, tmp_path, monkeypatch, caplog
):
    from flows import benchmark_arm

    kept = tmp_path / "last-error.log"
    monkeypatch.setattr("flows.runs.last_error.LAST_ERROR", kept)

    def broken(*_):
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(benchmark_arm, "arm_graph", broken)
    with pytest.raises(BenchmarkError, match=r"5 of 5 runs failed: .*: ValueError: nobody thought"):
        run("train.cycles=0")
    # What Prefect logs of its flow runs does not reach the terminal of `opd benchmark`.
    ours = [one for one in caplog.records if not one.name.startswith("prefect.")]
    assert [one.getMessage() for one in ours if one.exc_info] == []
    assert kept.read_text().count("\nValueError: nobody thought of this") == 5


def test_where_nothing_takes_deployment_runs_a_benchmark_says_so(run):
    with pytest.raises(ServerError, match=r"no worker takes flow runs of the pool gpu\nStart one"):
        run(mode="deployments")
