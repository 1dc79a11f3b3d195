"""One tiny run for all tests of run directories, without Prefect."""

import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load
from core.runs.configs import Submission
from core.runs.recorder import write_run
from flows.graphs.run import run_graph

REPO = Path(__file__).resolve().parents[3]


def tiny_recipe():
    """The smallest whole run, as the tests of the flows have it."""
    path = REPO / "tests/flows/conftest.py"
    spec = importlib.util.spec_from_file_location("flows_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TINY


def computed(root, *words):
    """Run the tiny recipe in ``root``; returns what makes its directory."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "tiny.yaml"
    path.write_text(tiny_recipe() + "# a comment that must survive\n")
    overrides = (
        f"runtime.store={root / 'store'}",
        f"run.output_dir={root / 'runs'}",
        *words,
    )
    loaded = load(path, overrides)

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    run = run_graph(loaded.recipe, call)
    given = Submission(loaded.recipe, loaded.runtime, loaded.source, overrides, str(path))
    return SimpleNamespace(
        store=Store(loaded.runtime.store),
        run=run,
        recipe=loaded.recipe,
        runtime=loaded.runtime,
        given=given,
    )


def directory_of(found):
    return write_run(found.store, found.run.artifacts(), found.recipe, found.runtime, found.given)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Store, references, recipe and runtime of one run, and its directory; not to be changed."""
    found = computed(tmp_path_factory.mktemp("tiny"))
    found.directory = directory_of(found)
    return found


@pytest.fixture
def copy(tiny, tmp_path):
    """A copy of the run's directory, far from its store, to be read or broken."""
    target = tmp_path / "elsewhere" / tiny.directory.name
    shutil.copytree(tiny.directory, target)
    return target
