"""`opd run` as a user meets it: its own process, its own server, killed at any instant."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.artifacts.ownership import owned
from core.errors import RunOwnedError

pytestmark = [pytest.mark.server, pytest.mark.slow]

REPO = Path(__file__).resolve().parents[3]

KILL_AT = """
import os, signal, importlib
module, name, calls = {module!r}, {name!r}, {calls}
owner = importlib.import_module(module)
*path, leaf = name.split(".")
for part in path:
    owner = getattr(owner, part)
original = getattr(owner, leaf)
def dying(*args, **kwargs):
    global calls
    calls -= 1
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)
setattr(owner, leaf, dying)
"""

INSTANTS = {
    "rollout": ("core.rollout.episode", "Episode.receive", 52),
    "scoring": ("core.teacher.physical", "top_k_targets", 1),
    "update": ("core.training.optimizer", "Optimizer.step", 1),
    "publish": ("core.artifacts.filesystem", "rename", 2),
    "evaluation": ("core.evaluation.evaluate", "summarise", 1),
}
"""Function that the process dies in, and at which of its calls."""


def opd(home, *words, kill=None):
    patch = KILL_AT.format(module=kill[0], name=kill[1], calls=kill[2]) if kill else ""
    return subprocess.run(
        [sys.executable, "-c", f"{patch}\nfrom flows.cli import main\nmain()", *words],
        cwd=REPO,
        env={**os.environ, "OPD_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture
def words(recipe_file, tmp_path):
    def make(store):
        return [
            "run",
            str(recipe_file),
            f"runtime.store={tmp_path / store}",
            f"run.output_dir={tmp_path / 'runs'}",
            "--json",
        ]

    return make


def test_five_kills_end_in_the_bytes_of_the_uninterrupted_run(words, tmp_path):
    home = tmp_path / "prefect"
    undisturbed = json.loads(opd(home, *words("undisturbed")).stdout)
    for instant in INSTANTS.values():
        killed = opd(home, *words("killed"), kill=instant)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = json.loads(opd(home, *words("killed")).stdout)
    assert finished["student"] == undisturbed["student"]
    assert 0 < finished["computed"] < undisturbed["computed"] == 16
    assert not any((tmp_path / "killed" / ".staging").glob("*/*/record.json"))


def test_the_second_run_is_cached_and_never_imports_torch(words, tmp_path):
    home = tmp_path / "prefect"
    assert opd(home, *words("store")).returncode == 0
    probe = "import sys; sys.modules.update(torch=None, transformers=None)"
    again = subprocess.run(
        [sys.executable, "-c", f"{probe}\nfrom flows.cli import main\nmain()", *words("store")],
        cwd=REPO,
        env={**os.environ, "OPD_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["computed"] == 0


def test_a_person_reads_three_numbers_and_where_the_report_is(recipe_file, tmp_path):
    done = opd(
        tmp_path / "prefect",
        "run",
        str(recipe_file),
        f"runtime.store={tmp_path / 'store'}",
        f"run.output_dir={tmp_path / 'runs'}",
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^(before|after) .*% held-out success$", done.stdout, re.M)) == 3
    report = re.search(r"^report: (.*)$", done.stdout, re.M).group(1)
    assert Path(report).is_file()
    assert "Traceback" not in done.stdout + done.stderr


def test_a_second_start_of_a_run_is_refused_and_another_directory_is_free(words, tmp_path):
    directory = tmp_path / "runs" / "tiny-seed3"
    with owned(directory):
        again = opd(tmp_path / "prefect", *words("store"), "runtime.wait_for_run=false")
        assert again.returncode == RunOwnedError.exit_code
        lines = again.stderr.strip().splitlines()
        assert f"{directory} belongs to a run that goes on: process {os.getpid()} on" in lines[-2]
        assert "Traceback" not in again.stderr
        assert opd(tmp_path / "prefect", *words("store"), "run.run_id=other").returncode == 0
    assert opd(tmp_path / "prefect", *words("store")).returncode == 0
