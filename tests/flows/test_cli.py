"""Bad input: two lines and an exit code, before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


def opd(*words, cwd=REPO):
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def refused(done, *fragments, code=2):
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert lines[0].startswith("error: ")
    assert lines[-1].startswith("  fix: ")
    assert len(lines) == 2
    assert "Traceback" not in done.stderr
    for fragment in fragments:
        assert fragment in done.stderr


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_missing_recipe_is_named_with_its_neighbours(command):
    refused(opd(command, "recipes/toi.yaml"), "recipes/toi.yaml", "recipes/toy.yaml")


def test_a_wrong_key_gets_a_did_you_mean():
    refused(opd("plan", "recipes/toy.yaml", "train.cycels=3"), "train.cycels", "train.cycles")


def test_a_value_out_of_bounds_names_key_value_and_bound():
    refused(opd("plan", "recipes/toy.yaml", "train.cycles=-3"), "train.cycles", "-3", "0")


def test_a_feature_that_is_not_built_is_refused_by_name():
    refused(opd("plan", "recipes/toy.yaml", "alignment.method=x"), "not built yet")


def test_an_offline_run_names_the_commit_that_is_not_on_the_disk():
    commit = "0123456789" * 4
    words = ("models.student.model_id=nobody/nothing", f"models.student.revision={commit}")
    done = opd("run", "recipes/smollm2.yaml", "--offline", *words)
    refused(done, f"nobody/nothing@{commit}", "this run is offline", "hf download nobody/nothing")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "empty"),
        ("- a\n", "mapping"),
        ("run: !!python/object/apply:os.system [true]\n", "tag"),
        ("run: {mode: opd\n", "yaml:2"),
    ],
)
def test_broken_yaml_is_refused(tmp_path, text, fragment):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    refused(opd("run", path), str(path), fragment)


def test_a_missing_gguf_file_is_refused(tmp_path):
    refused(opd("import-gguf", tmp_path / "a.gguf", "--out", tmp_path / "m"), "a.gguf")


def test_a_model_directory_without_weights_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    recipe = (
        "models: {backend: hf, student: {model_id: DIR}, teacher: {model_id: DIR}}\n"
        "environment: {name: calculator}\n"
    ).replace("DIR", str(tmp_path))
    (tmp_path / "r.yaml").write_text(recipe)
    refused(opd("plan", tmp_path / "r.yaml"), str(tmp_path), "safetensors")


def test_a_store_that_cannot_be_written_is_refused(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = opd("plan", "recipes/toy.yaml", f"runtime.store={blocked}/store")
    assert "Traceback" not in done.stderr


def test_a_port_out_of_range_is_refused():
    refused(opd("up", "--port", "99999"), "99999 is no port", "65535")


@pytest.mark.parametrize("text", ["", '{"student": {}}'])
def test_a_directory_that_shows_no_run_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    refused(opd("sample", tmp_path, "hello"), "is no run directory", "manifest.json")


def test_recipes_lists_what_is_there():
    done = opd("recipes")
    assert done.returncode == 0
    assert "recipes/toy.yaml" in done.stdout


def test_the_schema_is_a_json_schema():
    import json

    document = json.loads(opd("schema").stdout)
    assert "environment" in document["properties"]
