"""The shape of the repository is a promise; these tests keep it."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import core
import flows
import tasks

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "tasks", "flows")
TOP_LEVEL = {
    "pyproject.toml",
    "README.md",
    "flows",
    "tasks",
    "core",
    "recipes",
    "deployments",
    "tests",
    "docs",
}
UNTRACKED_FROM_THE_MIRROR = {"architecture", "golden", "benchmarks", "gpu"}
MAX_LINES = 300


def tracked(*patterns: str) -> list[Path]:
    """Files git knows or would add, so that build leftovers do not count."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [Path(name) for name in listed if (REPO / name).exists()]


def sources() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.parts[0] in PACKAGES]


def test_the_top_level_holds_what_the_design_names():
    names = {path.parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


def test_no_file_passes_three_hundred_lines():
    python = [path for path in tracked() if path.suffix == ".py"]
    long = {
        str(p): n for p in python if (n := len((REPO / p).read_text().splitlines())) > MAX_LINES
    }
    assert long == {}


def test_no_file_is_named_after_nothing():
    banned = {"utils", "helpers", "common", "misc", "manager"}
    assert [str(p) for p in sources() if banned & {p.stem, *p.parent.parts}] == []


def test_packages_come_from_this_repository():
    for package in (core, tasks, flows):
        assert Path(package.__file__).resolve().is_relative_to(REPO)


def test_tests_mirror_sources():
    """tests/core/losses/test_buckets.py tests core/losses/buckets.py, and so on."""
    known = set(sources())
    orphans = [
        str(test)
        for test in tracked("tests")
        if test.suffix == ".py"
        and test.name.startswith("test_")
        and test.parts[1] not in UNTRACKED_FROM_THE_MIRROR
        and Path(*test.parts[1:-1], test.name.removeprefix("test_")) not in known
    ]
    assert orphans == []


def test_tests_are_no_package():
    assert [str(path) for path in tracked("tests") if path.name == "__init__.py"] == []


def test_every_module_says_what_it_is():
    silent = [str(p) for p in sources() if not ast.get_docstring(ast.parse((REPO / p).read_text()))]
    assert silent == []


def test_the_tree_in_the_readme_is_the_tree_on_disk():
    spec = importlib.util.spec_from_file_location("tree", REPO / "tests/architecture/tree.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.in_readme() == module.tree(), "run `python tests/architecture/tree.py`"


TORCH_FREE = """
import sys
sys.modules.update(dict.fromkeys(["torch", "transformers", "peft"]))
import core.recipe.loading, core.artifacts.store, core.artifacts.code, core.report.page
import core.trajectory.io, core.evaluation.metrics, core.environments.registry
import core.selection.selectors, flows.runs.plan, core.runs.recorder
import core.runs.archive, core.runs.inspection, core.report.run_report, flows.commands.inspection
assert "prefect" not in sys.modules
"""


def test_what_inspects_imports_without_torch_and_prefect():
    subprocess.run([sys.executable, "-c", TORCH_FREE], cwd=REPO, check=True)


def test_core_imports_no_orchestrator():
    script = (
        "import sys, pkgutil, importlib, core\n"
        "for m in pkgutil.walk_packages(core.__path__, 'core.'): importlib.import_module(m.name)\n"
        "assert not [m for m in sys.modules if m == 'prefect' or m.startswith('prefect.')]\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=REPO, check=True)


@pytest.mark.parametrize("word", ["import pickle", "cloudpickle", "torch.save(", "torch.load("])
def test_nothing_is_pickled(word):
    assert [str(p) for p in sources() if word in (REPO / p).read_text()] == []
