import hashlib
import json
import shutil
import zipfile

import pytest
from typer.testing import CliRunner

from core.artifacts.store import Store
from core.errors import InputError, OpdError
from core.recipe.loading import load
from core.runs.manifest import load_manifest
from core.runs.recorder import write_run
from flows.cli import app
from flows.graphs.run import run_graph


@pytest.fixture
def directory(recipe_file, overrides):
    loaded = load(recipe_file, overrides)

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    run = run_graph(loaded.recipe, call)
    return write_run(Store(loaded.runtime.store), run.artifacts(), loaded.recipe, loaded.runtime)


def opd(*words):
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def test_inspect_shows_whose_tokens_were_trained(directory):
    done = opd("inspect", directory)
    assert done.exit_code == 0
    assert "tool_result" in done.stdout or "assistant_text" in done.stdout
    found = json.loads(opd("inspect", directory, "--json").stdout)
    assert found["status"] == "completed"
    assert {row["span_type"] for row in found["spans"]} >= {"system", "user"}


def test_inspect_shows_an_episode_token_by_token(directory):
    listed = json.loads(opd("inspect", directory, "--episodes", "--json").stdout)["episodes"]
    name = listed[0]["id"]
    found = json.loads(opd("inspect", directory, "--episode", name, "--json").stdout)
    assert [row["position"] for row in found["tokens"]] == list(range(len(found["tokens"])))
    assert name in opd("inspect", directory, "--episode", name).stdout


def test_a_report_that_is_made_again_has_the_bytes_of_the_run_s_own_and_leaves_the_store_alone(
    directory, tmp_path
):
    before = (directory / "report.html").read_bytes()
    manifest = load_manifest(directory)
    assert manifest.report is not None
    stored = tmp_path / "store" / manifest.report.address / "report.html"
    assert stored.read_bytes() == before
    assert opd("report", directory).exit_code == 0
    assert (directory / "report.html").read_bytes() == before
    assert not (directory / "report.html").samefile(stored)
    entry = load_manifest(directory).files["report.html"]
    assert entry.sha256 == hashlib.sha256(before).hexdigest()


def test_a_report_is_made_of_a_copy_without_its_page_and_its_store(directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    shutil.rmtree(tmp_path / "store")
    (copy / "report.html").unlink()
    assert opd("report", copy).exit_code == 0
    assert "after OPD" in (copy / "report.html").read_text()
    place = tmp_path / "page.html"
    assert opd("report", copy, "--out", place).exit_code == 0
    assert place.read_bytes() == (copy / "report.html").read_bytes()


def test_a_report_is_printed_as_markdown_or_json(directory):
    assert opd("report", directory, "--markdown").stdout == (directory / "summary.md").read_text()
    found = json.loads(opd("report", directory, "--json").stdout)
    assert found["seed"] == 3


def test_an_export_says_what_it_left_out(directory, tmp_path):
    place = tmp_path / "run.zip"
    done = opd("export-run", directory, "--out", place)
    assert done.exit_code == 0
    assert "left out   local.json" in done.stdout
    with zipfile.ZipFile(place) as archive:
        assert all(name.startswith("tiny-seed3/") for name in archive.namelist())


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no run directory"):
        opd("inspect", tmp_path)


@pytest.fixture
def benchmark_directory(tmp_path):
    """The tables of a benchmark of two arms on one seed."""
    arms = [
        {"name": name, "description": "", "method": "m", "objective": "o", "states": "fresh"}
        for name in ("a", "b")
    ]
    document = {
        **{"name": "two", "description": "", "digest": "d" * 64, "seeds": [1], "baseline": "a"},
        **{"arms": [arm | {"differs": []} for arm in arms], "comparisons": [["b", "a"]]},
        **{"budget": {"axis": "optimizer_steps", "limit": None}, "eval_split": "test"},
        **{"alpha": 0.05, "looks": 1, "published": None, "missing": [], "identical": []},
        "results": [],
    }
    rows = [
        {"arm": arm, "seed": 1, "task_id": f"t{task}", "sample": 0, "success": arm == "b"}
        for arm in ("a", "b")
        for task in range(4)
    ]
    place = tmp_path / "benchmark-two"
    place.mkdir()
    (place / "results.json").write_text(json.dumps(document))
    (place / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return place


def test_the_report_of_a_benchmark_is_made_from_its_files(benchmark_directory, tmp_path):
    done = opd("report", benchmark_directory)
    assert done.stdout.split() == [
        str(benchmark_directory / name) for name in ("report.html", "summary.md")
    ]
    printed = opd("report", benchmark_directory, "--markdown").stdout
    assert printed == (benchmark_directory / "summary.md").read_text()
    assert "one seed: no significance is claimed" in printed
    found = json.loads(opd("report", benchmark_directory, "--json").stdout)
    assert found["comparison"]["comparisons"][0]["effect"] == 1.0
    opd("report", benchmark_directory, "--out", tmp_path / "page.html")
    page = (benchmark_directory / "report.html").read_bytes()
    assert (tmp_path / "page.html").read_bytes() == page


def test_damaged_tables_of_a_benchmark_are_refused(benchmark_directory):
    (benchmark_directory / "rows.jsonl").write_text("{")
    with pytest.raises(OpdError, match=r"rows\.jsonl"):
        opd("report", benchmark_directory)
