"""``opd cache`` reads what a run left behind, without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load
from flows.graphs.run import run_graph

REPO = Path(__file__).resolve().parents[3]
BLOCKED = "import sys; sys.modules['torch'] = None; from flows.cli import main; main()"


def opd(*words):
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, "cache", *map(str, words)],
        cwd=REPO, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.fixture
def targets_of(recipe_file, tmp_path):
    """Return f(store, overrides): digests and metrics of the targets of a run."""

    def run(store, *words):
        loaded = load(recipe_file, [f"runtime.store={tmp_path / store}", *words])

        def call(step, spec, *, name, **parents):
            prepared = step.prepare(spec, runtime=loaded.runtime, name=name, **parents)
            return prepared.found or prepared.run()

        parts = run_graph(loaded.recipe, call).parts
        refs = [ref for role, ref in sorted(parts.items()) if role.startswith("targets_")]
        records = [Store(tmp_path / store).record(ref) for ref in refs]
        return [ref.digest for ref in refs], [record.metrics for record in records]

    return run


def test_arms_share_targets_and_no_byte_depends_on_it(targets_of, tmp_path):
    """C72: whatever was scored before, the artifacts are those of a run that shares nothing."""
    arm = ("train.learning_rate=0.01", "selection.selector=tool_and_final")
    alone, metrics = targets_of("alone", *arm, "cache.enabled=false")
    assert [one["reused_positions"] for one in metrics] == [0, 0]
    targets_of("shared", "cache.enabled=true")
    beside, metrics = targets_of("shared", *arm, "cache.enabled=true")
    assert beside == alone
    assert metrics[0]["computed_positions"] == 0
    found = json.loads(opd("stats", "--store", tmp_path / "shared", "--json").stdout)
    assert found["positions"] > 0
    assert found["hits"] >= metrics[0]["reused_positions"]
    (row,) = found["scopes"]
    assert (row["mode"], row["top_k"]) == ("bucketed_topk_tail", 8)
    assert row["full_vocabulary_bytes"] == 2 * row["positions"] * 335
    text = opd("stats", "--store", tmp_path / "shared").stdout
    assert f"{found['positions']} positions" in text
    assert opd("validate", "--store", tmp_path / "shared").returncode == 0
    (damaged, *_) = sorted((tmp_path / "shared" / ".teacher-cache").glob("targets-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    done = opd("validate", "--store", tmp_path / "shared", "--json")
    assert done.returncode == 3
    (problem,) = json.loads(done.stdout)["problems"]
    assert damaged.name in problem


def test_a_cache_that_is_not_there_is_bad_input(tmp_path):
    for command in ("stats", "validate"):
        done = opd(command, "--store", tmp_path)
        assert done.returncode == 2
        assert "there is no cache of teacher targets" in done.stderr
        assert "  fix: " in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
