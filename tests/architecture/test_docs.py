"""What docs/ says is held against the code and against a run, so that it cannot go stale."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from core.artifacts.store import Store
from core.environments.base import FailureCategory
from core.losses.registry import OBJECTIVES
from core.recipe.benchmark_loading import load_benchmark
from core.recipe.loading import load_text
from core.recipe.runtime import Runtime
from core.trajectory.spans import SpanType
from core.trajectory.trajectory import TerminationReason
from flows.graphs.run import run_graph

REPO = Path(__file__).resolve().parents[2]
DOCS = sorted((REPO / "docs").rglob("*.md"))
BY_VALUE = {
    "loss_by_span_type",
    "selected_by_span_type",
    "termination_reasons",
    "failure_categories",
    "objective_diagnostics",
    "pass_at_k",
}
"""Names of mappings whose keys are data; their values have tables of their own."""


def module_at(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, REPO / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = module_at("tests/architecture/recipe_table.py")
RESULTS = module_at("tests/architecture/results_table.py")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store in which the tiny recipe has run, without Prefect."""
    tiny = module_at("tests/flows/conftest.py").TINY
    root = tmp_path_factory.mktemp("docs") / "store"
    loaded = load_text(tiny, [f"runtime.store={root}"])

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    run_graph(loaded.recipe, call)
    return Store(root)


def section(document, heading):
    text = (REPO / "docs" / document).read_text(encoding="utf-8")
    return re.search(rf"^## `?{re.escape(heading)}`?\n(.*?)(?=^## |\Z)", text, re.M | re.S).group(1)


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def first_column(text):
    return {cells[0].strip("`") for cells in rows(text)}


def names(value, prefix=""):
    """Dotted names of all keys in a JSON value, a star for a difficulty."""
    if isinstance(value, list):
        return {name for item in value for name in names(item, f"{prefix}[]")}
    parent = prefix.rpartition(".")[2]
    if not isinstance(value, dict) or parent in BY_VALUE:
        return set()
    if parent == "success_by_difficulty":
        return {name for inner in value.values() for name in names(inner, f"{prefix}.*")}
    keyed = {f"{prefix}.{key}" if prefix else key: inner for key, inner in value.items()}
    return keyed.keys() | {name for key, inner in keyed.items() for name in names(inner, key)}


@pytest.mark.parametrize(("file", "marker"), TABLES.TABLES, ids=str)
def test_a_generated_table_is_up_to_date(file, marker):
    made = TABLES.TABLES[file, marker]().strip("\n")
    assert TABLES.in_docs(file, marker) == made, "run `python tests/architecture/recipe_table.py`"


def test_every_setting_of_the_runtime_is_read():
    sources = [
        path.read_text()
        for package in ("core", "tasks", "flows")
        for path in (REPO / package).rglob("*.py")
        if "recipe" not in path.parts
    ]
    names = [name for name in Runtime.model_fields if name != "inherited"]
    unread = [name for name in names if not any(f"runtime.{name}" in text for text in sources)]
    assert unread == [], "move it to core.recipe.runtime.Inherited, which says it has no effect"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_what_a_page_names_exists(path):
    # What a docstring of the schema names stands in generated tables, and is not the page's own.
    text = re.sub(r"<!-- .*? -->.*?<!-- end -->", "", path.read_text(encoding="utf-8"), flags=re.S)
    files = re.findall(r"`((?:core|tasks|flows|tests|docs|recipes|deployments)/[\w./-]+)`", text)
    assert [name for name in files if not (REPO / name).exists()] == []
    tests = "".join(p.read_text() for p in (REPO / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_the_table_of_steps_is_what_a_run_leaves(store):
    table = {
        cells[0].strip("`"): cells
        for cells in rows(section("architecture.md", "One run, step by step"))
    }
    records = [
        r for kind in sorted(p.name for p in store.root.iterdir()) for r in store.siblings(kind)
    ]
    assert len(records) == 16
    for record in records:
        _, kind, files, parents, _ = table[record.task]
        assert kind == f"`{record.kind}`"
        assert set(record.files) <= set(re.findall(r"`(\S+?)`", files))
        roles = {re.sub(r"_\d+$", "", role) for role in record.parents}
        assert roles <= set(re.findall(r"\w+", parents))


@pytest.mark.parametrize(
    "file",
    [
        "metrics.jsonl",
        "stats.json",
        "eval.json",
        "selection.json",
        "canaries.json",
        "token_analysis.jsonl",
    ],
)
def test_every_name_in_a_file_is_defined(store, file):
    defined = first_column(section("metrics.md", file))
    if file == "eval.json":
        defined |= {f"stats.{name}" for name in first_column(section("metrics.md", "stats.json"))}
    paths = sorted(store.root.glob(f"[a-z]*/*/{file}"))
    lines = [text for path in paths for text in split(path)]
    assert lines
    assert {name for text in lines for name in names(json.loads(text))} - defined == set()


def split(path):
    text = path.read_text(encoding="utf-8")
    return text.split("\n")[:-1] if path.suffix == ".jsonl" else [text]


def test_every_metric_of_a_record_is_defined(store):
    defined = {
        (cells[0].strip("`"), cells[1].strip("`"))
        for cells in rows(section("metrics.md", "record.json"))
    }
    copied = first_column(section("metrics.md", "selection.json"))
    defined |= {("score_rollouts", name) for name in copied}
    on_a_device = ("initialize_student", "prepare_teacher", "cold_start", "sample_rollouts")
    on_a_device += ("score_rollouts", "update_student", "evaluate_student", "qualify_teacher")
    defined |= {(task, name) for task in on_a_device for each, name in defined if each == "any"}
    stages = {"before cold start", "after cold start", "after OPD"}
    defined |= {("write_report", stage) for stage in stages}
    found = {
        (record.task, name)
        for path in store.root.glob("[a-z]*")
        for record in store.siblings(path.name)
        for name in record.metrics
    }
    assert found - defined == set()


def test_every_value_of_a_category_is_defined():
    text = (REPO / "docs/metrics.md").read_text(encoding="utf-8")
    values = [*TerminationReason, *FailureCategory, *SpanType]
    assert [value for value in values if f"| `{value}` |" not in text] == []


def test_every_diagnostic_of_an_objective_is_defined():
    defined = first_column(section("metrics.md", "metrics.jsonl"))
    reported = {
        n for each in OBJECTIVES.values() for n in each.diagnostics + each.support_diagnostics
    }
    assert reported - defined == set()


def test_the_results_of_the_readme_are_those_of_a_notebook_entry():
    """Both come from the same artifacts; neither may be edited alone."""
    found = results_of(RESULTS.BLOCK.search((REPO / "README.md").read_text("utf-8")).group())
    entries = (REPO / "docs/lab_notebook.md").read_text("utf-8").split("\n## ")
    assert len(found) == 5
    assert any(found.items() <= results_of(entry).items() for entry in entries)


def test_the_benchmarks_of_the_readme_are_in_the_notebook_with_their_digests():
    block = RESULTS.BLOCK.search((REPO / "README.md").read_text("utf-8")).group()
    files = [REPO / f"recipes/benchmarks/{name.replace('-', '_')}.yaml" for name in RESULTS.SHOWN]
    digests = [load_benchmark(path, []).digest for path in files]
    assert re.findall(r"`([0-9a-f]{16})`", block) == [digest[:16] for digest in digests]
    notebook = (REPO / "docs/lab_notebook.md").read_text("utf-8")
    assert [one for one in digests if one not in notebook] == []


@pytest.mark.parametrize("name", ["toy_scarce", "toy_plenty", "recovery_toy", "smollm2_scarce"])
def test_a_benchmark_that_was_written_down_is_still_the_same(name):
    """Neither the file nor the digest may change under what the notebook says of it."""
    grid = load_benchmark(REPO / f"recipes/benchmarks/{name}.yaml", [])
    assert f"`{grid.digest}`" in (REPO / "docs/lab_notebook.md").read_text("utf-8")


def results_of(text):
    """The numbers of every row of a table that has any, by its first cell."""
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    found = {row[0].strip(): re.findall(r"[−+]?\d+\.\d", "|".join(row[1:])) for row in cells}
    return {arm: numbers for arm, numbers in found.items() if numbers}
