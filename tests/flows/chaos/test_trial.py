"""`opd chaos` on the smallest run: it ends in the bytes of the undisturbed run, or names a file."""

import json
import subprocess
import sys

import pytest

from core.errors import ChaosError, RecipeError
from flows.chaos.attempt import Attempt, Scene, ending
from flows.chaos.trial import Chaos, chaos, check, lines


@pytest.mark.slow
def test_disturbed_runs_end_in_the_bytes_of_the_undisturbed_one(recipe_file):
    """C84: a run that was killed goes on from what is in the store, whoever starts it."""
    found = chaos(recipe_file, [], kills=6, seed=3, direct=True)
    check(found)
    assert found.comparisons >= 1
    assert found.artifacts == 15
    assert found.operations > 300
    assert len(found.attempts) >= 7
    ends = {a.ended for a in found.attempts}
    assert ends <= {"killed", "refused", "interrupted", "finished"}
    table = lines(found)
    assert len(table) == len(found.attempts) + 3
    assert f"all {found.artifacts} artifacts had the bytes" in table[-1]
    assert json.loads(json.dumps(found.as_document()))["failures"] == 0


@pytest.mark.slow
@pytest.mark.server
def test_the_command_disturbs_the_run_that_a_user_starts(recipe_file, tmp_path):
    """C84: with the server that dies with the run."""
    words = ["chaos", str(recipe_file), "--kills", "1", "--seed", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["attempts"][-1]["ended"] == "finished"
    assert document["comparisons"] >= 1


# ---------------------------------------------------------------- refusals


def test_other_bytes_a_hang_and_a_crash_are_failures():
    for ended in ("hung", "crashed", "other bytes"):
        attempt = Attempt(1, "SIGKILL after 1.00 s", "", ended, "", "student/0 differs", 1.0)
        with pytest.raises(ChaosError, match=f"attempt 1 .*{ended}"):
            check(Chaos("tiny.yaml", 7, 15, 400, [attempt]))


def test_a_run_that_never_ends_has_proved_nothing():
    refused = Attempt(1, "none", "", "refused", "", "store/.staging", 1.0)
    with pytest.raises(ChaosError, match="no attempt got to its end"):
        check(Chaos("tiny.yaml", 7, 15, 400, [refused]))


def test_a_refusal_must_name_a_file_of_the_store(tmp_path):
    scene = Scene(tmp_path / "tiny.yaml", (), tmp_path / "scratch", direct=True)
    named = f"error: {scene.scratch}/store/.staging: cannot write file: No space left on device"
    assert ending(3, f"noise\n{named}\n", "full_disk", scene)[0] == "refused"
    assert ending(3, "error: something went wrong\n", "full_disk", scene)[0] == "crashed"
    assert ending(1, "Traceback\nValueError: 3\n", "kill", scene) == (
        "crashed",
        "exit code 1: ValueError: 3",
    )
    assert ending(-9, "", "kill", scene) == ("killed", "SIGKILL")


def test_a_budget_of_seconds_has_no_bytes_to_compare(recipe_file):
    with pytest.raises(RecipeError, match="max_wall_seconds"):
        chaos(recipe_file, ["train.max_wall_seconds=5"], kills=1)


def test_a_recipe_that_does_not_run_is_said_to_be_at_fault(recipe_file):
    broken = ["runtime.device=cuda"]
    with pytest.raises(ChaosError, match="the undisturbed run of"):
        chaos(recipe_file, broken, kills=1, direct=True)
