"""What a plan of a benchmark says, and what walking its cells computes; without Prefect."""

import json
from pathlib import Path

import pytest

from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.evaluation.benchmark_results import read_results
from core.recipe.benchmark_grid import make_grid
from core.recipe.benchmark_loading import load_benchmark
from flows.benchmarks.board import Board
from flows.benchmarks.plan import (
    grid_text,
    look_up,
    plan_benchmark,
    plan_grid,
)
from flows.graphs.arm import arm_graph
from flows.graphs.run import Gate, stop_reason
from tasks.caching import open_store
from tasks.collect_benchmark import collect_benchmark

SMOKE = Path("recipes/benchmarks/smoke.yaml")


@pytest.fixture
def place(tmp_path):
    return [f"runtime.store={tmp_path / 'store'}", f"run.output_dir={tmp_path / 'runs'}"]


@pytest.fixture
def compute():
    """Compute all cells of a grid and its table; returns how many steps that took."""

    def run(grid):
        computed = 0

        def walk(cell):
            nonlocal computed
            opened = open_store(cell.runtime.store)

            def call(step, spec, *, name, **parents):
                nonlocal computed
                prepared = step.prepare(spec, runtime=cell.runtime, name=name, **parents)
                computed += prepared.found is None
                return prepared.run()

            arm_graph(
                cell.recipe, call, lambda student: stop_reason(student, opened), Gate(), cell.cold
            )

        for cell in grid.cells:
            walk(cell)
        return computed + 1  # the table

    return run


@pytest.fixture
def collected():
    """Put the results of a computed grid together, without Prefect."""

    def collect(grid, monkeypatch):
        board = Board(grid, None)
        assert board.look() == []
        monkeypatch.setattr(type(collect_benchmark), "perform", lambda self, call: call.run())
        return board, board.collect()

    return collect


def test_plan_and_run_agree_step_for_step(place, compute, collected, monkeypatch):
    """Also after a seed was added, an arm removed, and one arm's loss edited."""
    planned = plan_benchmark(SMOKE, [*place, "seeds=[1]"])
    grid = load_benchmark(SMOKE, [*place, "seeds=[1]"])
    assert compute(grid) == len(planned.missing())
    board, ref = collected(grid, monkeypatch)
    assert len(plan_grid(grid).missing()) == 0
    found = read_results(Store(board.runtime.store).path(ref))
    assert found.document["identical"] == [["strict-opd", "strict-opd-again"]]
    assert found.document["missing"] == []
    rates = {one["arm"]: one["optimizer_steps"] for one in found.document["results"]}
    assert rates == {
        "cold-start-only": 0,
        "sft-continued": 2,
        "offline-kd-oracle": 2,
        "strict-opd": 2,
        "strict-opd-again": 2,
    }
    assert {arm["name"]: arm["method"] for arm in found.document["arms"]} == {
        "cold-start-only": "cold_start_only",
        "sft-continued": "sft_cross_entropy",
        "offline-kd-oracle": "offline_knowledge_distillation",
        "strict-opd": "on_policy_distillation",
        "strict-opd-again": "on_policy_distillation",
    }
    more = [*place, "seeds=[1, 2]"]
    grown = plan_benchmark(SMOKE, more)
    assert all(one.result is not None for one in grown.cells if one.cell.seed == 1)
    assert compute(load_benchmark(SMOKE, more)) == len(grown.missing())
    document = grown.as_document()
    assert document["to_compute"] == len(grown.missing())
    assert [one["cached"] for one in document["cells"]] == [True] * 5 + [False] * 5
    fewer = load_benchmark(SMOKE, more)
    fewer = fewer.benchmark.model_copy(update={"arms": fewer.benchmark.arms[:4]})
    assert [step.step for step in plan_grid(make_grid(fewer)).missing().values()] == [
        "collect_benchmark"
    ]
    arms = (*fewer.arms[:3], fewer.arms[3].model_copy(update={"overrides": {"loss.top_k": 4}}))
    edited = make_grid(
        fewer.model_copy(
            update={"arms": arms, "allowed_differences": (*fewer.allowed_differences, "loss.*")}
        )
    )
    expected = plan_grid(edited)
    assert {one.cell.arm for one in expected.cells if one.result is None} == {"strict-opd"}
    assert compute(edited) == len(expected.missing())


def test_a_cell_that_is_there_is_answered_without_running_anything(place, compute):
    grid = load_benchmark(SMOKE, [*place, "seeds=[1]", "train.cycles=0"])
    [first, *_] = grid.cells
    assert look_up(first).result is None
    compute(grid)
    found = look_up(first)
    assert isinstance(found.result, ArtifactRef)
    assert found.seconds > 0.0
    assert all(step.status == "hit" for step in found.plan.steps)


def test_what_never_ran_took_no_time_that_could_be_told(place, compute):
    words = [*place, "seeds=[1]", "train.cycles=0"]
    [first, *_] = plan_benchmark(SMOKE, words).cells
    assert (first.seconds, first.never_run) == (None, len(first.plan.steps))
    text = grid_text(SMOKE, words, as_json=False)
    assert text.count("never run") == 5
    assert "when last run" not in text
    compute(load_benchmark(SMOKE, words))
    text = grid_text(SMOKE, words, as_json=False)
    assert "never run" not in text
    assert text.count("s when last run") == 5


def test_a_benchmark_without_results_has_a_directory_that_says_so(place, tmp_path):
    board = Board(load_benchmark(SMOKE, place), None)
    assert len(board.look()) == 10
    found = read_results(tmp_path / "runs" / "benchmark-smoke")
    assert len(found.document["missing"]) == 10
    assert found.rows == []


def test_equal_selected_tokens_are_equal_to_the_token(place, compute, collected, monkeypatch):
    view = ["budget.axis=selected_training_tokens", "budget.limit=50", "train.cycles=6"]
    grid = load_benchmark(SMOKE, [*place, "seeds=[1]", *view])
    compute(grid)
    board, _ = collected(grid, monkeypatch)
    found = board.show()
    assert found["budget"] == {"axis": "selected_training_tokens", "limit": 50.0}
    trained = [one for one in found["results"] if one["optimizer_steps"]]
    assert [one["arm"] for one in trained] == [arm.name for arm in grid.arms[1:]]
    assert {one["selected_tokens"] for one in trained} == {50}
    assert {one["budget"]["overshoot"] for one in trained} == {0}


def test_a_plan_asks_no_hub_and_says_what_it_cannot_know(tmp_path, monkeypatch):
    """A model that is not here costs neither half a minute of questions nor a download."""

    def asked(*_, **__):
        raise AssertionError("a plan asked the Hub")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", asked)
    path, place = Path("recipes/benchmarks/recovery_qwen.yaml"), f"runtime.store={tmp_path}/store"
    text = grid_text(path, [place], as_json=False)
    [last, digest, *rest] = text.splitlines()[::-1]
    assert digest == f"digest {load_benchmark(path, [place]).digest}"
    assert last.startswith("not known: which steps that read a model are in the store. Qwen/Qwen3")
    assert "hf download Qwen/Qwen3-0.6B" in last
    assert rest[0].endswith("steps to compute, those that arms share counted once")
    assert "not known" not in "".join(rest)
    cells = json.loads(grid_text(path, [place], as_json=True))["cells"]
    assert all("is not on this disk" in cell["absent"] for cell in cells)
