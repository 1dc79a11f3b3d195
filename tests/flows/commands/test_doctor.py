import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from core.artifacts.locking import locked
from core.artifacts.store import Store
from flows.cli import app
from flows.commands import doctor
from flows.commands.doctor import diagnose, diagnosis_lines


@pytest.fixture
def places(tmp_path):
    """A store and a home of nobody else."""
    return {"store": tmp_path / "store", "home": tmp_path / "home"}


def _about(found, subject):
    return [check for check in found.checks if check.subject == subject]


def test_a_fresh_checkout_is_well(places):
    found = diagnose(**places)
    assert found.verdict.core_commands
    assert [check.state for check in _about(found, "store")] == ["ok"]
    assert not places["store"].exists()
    assert any("this machine can run: core commands" in line for line in diagnosis_lines(found))


def test_without_torch_it_says_what_is_left_to_do(places, monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    found = diagnose(**places)
    assert (found.verdict.cpu_training, found.verdict.qlora_4bit) == (False, False)
    (check,) = _about(found, "training")
    assert check.remedy == "pip install 'opdflow[train]'"
    assert found.is_well


def test_a_gpu_that_torch_cannot_use_is_a_problem(places, monkeypatch):
    card = {"available": True, "names": ["H200"], "driver_version": "570.1", "count": 1}
    monkeypatch.setattr(doctor, "describe_gpu", lambda: card)
    monkeypatch.setattr(doctor, "cuda_is_present", lambda: False)
    found = diagnose(**places)
    (check,) = _about(found, "gpu")
    assert (check.state, found.is_well) == ("problem", False)
    assert "H200, driver 570.1, but torch cannot use it" in check.found


def test_little_room_is_a_problem(places, monkeypatch):
    monkeypatch.setattr(doctor, "LITTLE_BYTES", 1 << 62)
    (check,) = _about(diagnose(**places), "disk")
    assert (check.state, "opd gc" in check.remedy) == ("problem", True)


def test_what_killed_builders_left_is_named_with_its_remedy(places):
    store = Store(places["store"])
    for area in (".staging/rollouts-0-1-a", ".quarantine/rollouts-x", ".locks"):
        (store.root / area).mkdir(parents=True)
    (store.root / ".locks" / "rollouts-0.lock").touch()
    found = {check.found: check.remedy for check in _about(diagnose(**places), "store")}
    assert found.pop("1 unfinished artifacts in .staging").startswith("`opd gc --apply`")
    assert found.pop("1 damaged or superseded artifacts in .quarantine").startswith("`opd gc")
    assert list(found) == ["1 locks of dead processes"]


def test_a_store_that_cannot_be_read_is_a_problem_and_hides_no_other_check(places):
    (places["store"] / ".locks" / "no-file").mkdir(parents=True)
    (places["store"] / ".runs").mkdir()
    (places["store"] / ".runs" / "cut.json").write_text("{")
    found = diagnose(**places)
    assert [check.state for check in _about(found, "store")] == ["problem"]
    assert [check.state for check in _about(found, "runs")] == ["problem"]


def test_a_lock_that_is_held_is_not_called_dead(places):
    (places["store"] / ".locks").mkdir(parents=True)
    with locked(places["store"] / ".locks" / "rollouts-0.lock", "a test"):
        script = (
            "import sys; from pathlib import Path; from flows.commands.doctor import diagnose\n"
            "print([c.found for c in diagnose(Path(sys.argv[1])).checks if c.subject == 'store'])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(places["store"])],
            capture_output=True,
            text=True,
            check=True,
        )
    assert "dead" not in done.stdout


def test_half_a_stack_is_a_problem(places, monkeypatch):
    half = doctor.StackStatus("http://127.0.0.1:4200/api", "home", {"gpu": 7, "ctl": None})
    monkeypatch.setattr(doctor, "status", lambda home: half)
    (check,) = _about(diagnose(**places), "server")
    assert (check.state, check.found, check.remedy) == (
        "problem",
        "worker ctl not running",
        "Run `opd up` again.",
    )


def test_the_command_prints_one_document_and_fails_where_something_is_unwell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert found["verdict"]["core_commands"] is True
    monkeypatch.setattr(doctor, "LITTLE_BYTES", 1 << 62)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 3
    assert "PROBLEM  disk" in done.stdout


def test_a_run_that_was_cut_off_is_named_with_the_way_on(places, recipe_file, overrides):
    from core.recipe.loading import load
    from core.runs.recorder import recorded

    loaded = load(recipe_file, overrides)
    store = Store(loaded.runtime.store)
    with (
        pytest.raises(KeyboardInterrupt),
        recorded(store, loaded.recipe, loaded.runtime) as recorder,
    ):
        recorder.start()
        raise KeyboardInterrupt
    (check,) = _about(diagnose(store.root, places["home"]), "run")
    assert check.found.endswith("interrupted")
    assert check.remedy == "Its command again goes on where it stopped."
