"""The worked example of docs/environments.md works: its files are used as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from core.environments.conformance import CHECKS
from core.environments.registry import BUILT_IN
from core.recipe.loading import load
from flows.graphs.run import run_graph
from flows.runs.sources import open_plugins

REPO = Path(__file__).resolve().parents[2]
PAGE = (REPO / "docs" / "environments.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.M | re.S)
SMALL = (
    "models.teacher.toy_pretrain_steps=4",
    "environment.train_tasks=12",
    "environment.eval_tasks=4",
    "cold_start.demonstrations=8",
    "cold_start.cycles=2",
    "train.cycles=1",
    "train.rollouts_per_cycle=4",
    "train.gradient_accumulation_steps=4",
)
"""Enough to take every step; what the example learns is not tested here."""


@pytest.fixture
def example(tmp_path):
    """A directory with the files of the page."""
    for name, text in BLOCK.findall(PAGE):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def opd(*words, cwd):
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words],
        cwd=cwd,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def walk(path, overrides):
    """Run a recipe's steps without Prefect; returns the store's record of each."""
    store = path.parent / "store"
    loaded = load(path, [f"runtime.store={store}", *overrides])
    open_plugins(loaded.recipe, loaded.runtime)
    calls = []

    def call(step, spec, *, name, **parents):
        made = step.prepare(spec, runtime=loaded.runtime, name=name, **parents)
        calls.append(made)
        return made.run()

    run_graph(loaded.recipe, call)
    return {made.step.name: made.request for made in calls}


def test_the_page_holds_every_file_that_it_names():
    assert [name for name, _ in BLOCK.findall(PAGE)] == [
        "office.py",
        "office.yaml",
        "own.py",
        "own.yaml",
    ]


def test_the_environment_passes_its_check_and_can_be_read(example):
    checked = opd("env", "check", "office.py", cwd=example)
    assert "FAILED" not in checked
    assert "warning" not in checked
    shown = opd("env", "sample", "office.py", "--difficulty", "hard", "--count", "2", cwd=example)
    assert shown.count('"find ') == 4


def test_the_recipe_takes_every_step_in_the_environment(example):
    requests = walk(example / "office.yaml", SMALL)
    assert len(requests) == 10
    for task in ("prepare_splits", "sample_rollouts", "evaluate_student"):
        assert "plugin.environment.Office._find" in requests[task].code.functions


def test_the_selector_and_the_teacher_take_their_steps(example):
    base, own = (yaml.safe_load((example / n).read_text()) for n in ("office.yaml", "own.yaml"))
    (example / "both.yaml").write_text(yaml.safe_dump({**base, **own}))
    small = [word for word in SMALL if "teacher" not in word]
    requests = walk(example / "both.yaml", small)
    functions = requests["score_rollouts"].code.functions
    assert {"plugin.selector.some_of_the_solved", "plugin.teacher.Approving.logits"} <= set(
        functions
    )


def test_every_environment_and_every_check_is_described():
    assert [name for name in BUILT_IN if f"\n| `{name}` |" not in PAGE] == []
    assert [name for name in CHECKS if f"\n| `{name}` |" not in PAGE] == []
