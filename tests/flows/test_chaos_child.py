"""The steps of a run in processes of their own: what surrounds a process reaches no byte."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.artifacts.catalogue import Catalogue
from core.artifacts.store import Store

REPO = Path(__file__).resolve().parents[2]
POISON = """
import random, sys
import numpy, torch
from core.artifacts import filesystem
from core.models.toy import ToyBackend

def stir(*_):
    "Draw from the global generators, and seed them anew, at every touch of the disk."
    random.seed(random.getrandbits(64) ^ {salt})
    numpy.random.seed(random.getrandbits(31))
    torch.manual_seed(random.getrandbits(31))
    numpy.random.rand(3), torch.rand(3), random.random()

random.seed({salt})
filesystem.announce = stir
original = ToyBackend.hidden_states
def stirred(self, *arguments):
    stir()
    return original(self, *arguments)
ToyBackend.hidden_states = stirred
from flows import chaos_child
chaos_child.install = lambda fault: None
chaos_child.main(sys.argv[1:])
"""


@pytest.fixture
def steps(recipe_file, tmp_path):
    """Run the steps in a process; returns the content digest of every artifact but the report."""

    def run(name, *overrides, code=None, cwd=REPO, **surroundings):
        store = tmp_path / name
        options = {"kind": "none", "at": 0, "seed": 0, "direct": True}
        words = [json.dumps({**options, "count": str(tmp_path / "count")}), str(recipe_file)]
        start = ["-c", code] if code else ["-m", "flows.chaos_child"]
        own = [f"runtime.store={store}", f"run.output_dir={tmp_path / 'runs'}"]
        done = subprocess.run(
            [sys.executable, *start, *words, *own, *overrides],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(REPO), **surroundings},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return {
            f"{kind}/{record.key}": record.digest
            for kind in Catalogue(store).kinds()
            if kind != "report"
            for record in Store(store).siblings(kind)
        }

    return run


@pytest.mark.slow
def test_nothing_that_surrounds_a_process_reaches_a_byte_of_any_artifact(steps, tmp_path):
    """Another process, directory, user, hash seed, locale, time zone and number of slots."""
    home = tmp_path / "home of another user"
    home.mkdir()
    one = steps("one", PYTHONHASHSEED="1")
    two = steps(
        "two",
        "runtime.slots=3",
        cwd=home,
        PYTHONHASHSEED="4242",
        HOME=str(home),
        USER="nobody",
        LOGNAME="nobody",
        LC_ALL="C",
        TZ="Asia/Kathmandu",
    )
    assert one == two
    assert len(one) == 15


@pytest.mark.slow
def test_global_generators_are_neither_read_nor_trusted(steps):
    """C70: random, numpy and torch are seeded and drawn from all the time, in two ways."""
    calm = steps("calm")
    assert steps("one", code=POISON.format(salt=1)) == calm
    assert steps("two", code=POISON.format(salt=987654321)) == calm
