import json
import shutil

import pytest
from typer.testing import CliRunner

from core.artifacts.store import Store
from core.errors import InputError
from core.recipe.loading import load
from core.runs.manifest import load_manifest
from core.runs.recorder import write_run
from flows.cli import app
from flows.commands.audit import kept_runs
from flows.graphs.run import run_graph


def _compute(recipe_file, overrides):
    """Run a recipe without a server; returns the run's directory and the steps that were made."""
    loaded, made = load(recipe_file, overrides), []

    def call(step, spec, *, name, **parents):
        prepared = step.prepare(spec, runtime=loaded.runtime, name=name, **parents)
        if prepared.found is not None:
            return prepared.found
        made.append(step.name)
        return prepared.run()

    run = run_graph(loaded.recipe, call)
    store = Store(loaded.runtime.store)
    return write_run(store, run.artifacts(), loaded.recipe, loaded.runtime), made


@pytest.fixture
def run(recipe_file, overrides):
    return _compute(recipe_file, [*overrides, "train.cycles=4"])[0]


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def opd(*words):
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def test_a_sound_run_and_its_store_are_said_to_be(run, store):
    done = opd("verify", run)
    assert (done.exit_code, "all is sound" in done.stdout) == (0, True)
    done = opd("verify", store, "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["findings"]) == (0, [])
    assert found["artifacts"] > 10


def test_an_altered_byte_ends_with_a_remedy_and_code_three(run):
    path = run / "eval.json"
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole.replace(b"1", b"2", 1))
    done = opd("verify", run)
    assert done.exit_code == 3
    assert "eval.json: content was altered\n  fix: " in done.stdout


def test_two_runs_with_another_seed_part_at_their_first_step(run, recipe_file, overrides):
    other = _compute(recipe_file, [*overrides, "train.cycles=4", "run.seed=8"])[0]
    done = opd("diff", run, other)
    assert done.exit_code == 0
    assert "recipe: run.seed: " in done.stdout
    assert "first step that differs: " in done.stdout
    assert opd("diff", run, run).stdout.endswith("artifacts are equal, byte for byte\n")


def test_nothing_goes_unless_asked_and_a_rerun_after_it_computes_nothing(
    run, store, recipe_file, overrides
):
    words = [*overrides, "train.cycles=4"]
    listed = opd("gc", "--store", store)
    assert "nothing was removed: add --apply" in listed.stdout
    assert "shed" in listed.stdout
    done = json.loads(opd("gc", "--store", store, "--apply", "--json").stdout)
    assert done["freed_bytes"] == done["could_free_bytes"] > 0
    assert opd("verify", store).exit_code == 0
    again, made = _compute(recipe_file, words)
    assert made == []
    assert again == run


def test_one_more_cycle_after_cleaning_up_makes_again_what_it_needs(
    run, store, recipe_file, overrides
):
    manifest = load_manifest(run)
    opd("gc", "--store", store, "--apply")
    shutil.rmtree(Store(store).path(manifest.artifacts["student_0002"].ref))
    shutil.rmtree(Store(store).path(manifest.artifacts["student_0003"].ref))
    _, made = _compute(recipe_file, [*overrides, "train.cycles=4"])
    assert made == ["update_student", "update_student"]
    assert load_manifest(run).student == manifest.student


def test_runs_whose_needs_are_unknown_stop_the_clean_up(run, store, tmp_path):
    assert [kept.name for kept in kept_runs([], store)] == [str(run.absolute())]
    with pytest.raises(InputError, match="no such directory of runs"):
        kept_runs([tmp_path / "nowhere"], store)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no run lies there"):
        kept_runs([tmp_path / "none"], store)
    for place in (run, run.parent):
        assert [kept.name for kept in kept_runs([place], tmp_path / "other")] == [
            str(run.absolute())
        ]
    (run / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be used"):
        kept_runs([], store)


def test_places_that_are_no_store_and_no_run_are_refused(tmp_path):
    for words in (("verify", tmp_path / "x"), ("gc", "--store", tmp_path / "x")):
        done = CliRunner().invoke(app, list(map(str, words)))
        assert "there is no store" in str(done.exception)
