"""``opd env``: from an empty directory to a checked environment, without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.environments import starter

REPO = Path(__file__).resolve().parents[3]
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from flows.cli import main
main()
"""


def opd(*words, cwd):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "env", *map(str, words)],
        cwd=cwd,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def refused(done, *fragments, code=2):
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == 2
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("  fix: ")
    for fragment in fragments:
        assert fragment in done.stderr


def test_a_new_environment_passes_its_check_and_shows_its_episodes(tmp_path):
    made = opd("new", "my_world", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "class MyWorld(ToolWorld)" in (tmp_path / "my_world.py").read_text()
    checked = opd("check", "my_world.py", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "FAILED" not in checked.stdout
    section = json.loads(checked.stdout.splitlines()[-1])["environment"]
    assert section["name"] == "my_world"
    assert len(section["plugin"]["sha256"]) == 64
    shown = opd("sample", "my_world.py", "--difficulty", "hard", "--count", 2, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("[assistant_final]") == 2
    assert shown.stdout.count("[system]") == 1
    assert "(my_world-train-0, solved; answer" in shown.stdout


def test_a_fault_is_printed_and_exits_with_two(tmp_path):
    opd("new", "my_world", cwd=tmp_path)
    path = tmp_path / "my_world.py"
    path.write_text(path.read_text().replace("OracleFinal(task.answer)", "OracleFinal('0')"))
    done = opd("check", path, cwd=tmp_path)
    refused(done, "'my_world' breaks its contract: oracle")
    assert "FAILED   oracle" in done.stdout
    document = json.loads(opd("check", path, "--json", cwd=tmp_path).stdout)
    failed = [check["check"] for check in document["checks"] if not check["passed"]]
    assert (document["passed"], failed) == (False, ["oracle"])


def test_a_built_in_environment_is_checked_by_name(tmp_path):
    done = opd("check", "calculator", "prompt_style=compact", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["passed"] is True
    assert document["recipe"] == {"name": "calculator", "params": {"prompt_style": "compact"}}


def test_the_list_names_all_and_what_they_ask(tmp_path):
    rows = json.loads(opd("list", "--json", cwd=tmp_path).stdout)
    assert [row["name"] for row in rows][:5] == [
        "calculator",
        "jsonnav",
        "sqlite",
        "sqlite_recovery",
        "tool_policy",
    ]
    assert opd("list", cwd=tmp_path).stdout.count("\n") == len(rows)


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["check", "nothing.py"], "nothing.py cannot be read"),
        (["check", "calculater"], "Known: calculator"),
        (["check", "calculator", "prompt_style"], "is not key=value"),
        (["sample", "calculator", "--difficulty", "odd"], "easy, medium, hard"),
        (["sample", "calculator", "--split", "odd"], "train, eval, test"),
        (["new", "Calculator"], "lower-case letters"),
        (["new", "calculator"], "no built-in environment's name"),
        (["new", "task"], "a class that a world needs"),
        (["new", "none"], "a class that a world needs"),
        (["new", "world", "--out", "taken.py"], "taken.py exists"),
        (["new", "world", "--out", "no/such/place.py"], "cannot be written"),
    ],
)
def test_bad_input_is_refused_in_two_lines(tmp_path, words, fragment):
    (tmp_path / "taken.py").write_text("")
    refused(opd(*words, cwd=tmp_path), fragment)


@pytest.mark.parametrize("command", ["check", "sample"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('rng = Random(f"starter:{seed}', "raise KeyError('till'); rng = Random(f\"starter:{seed}"),
        (
            "    def begin(",
            "    def __init__(self):\n        raise KeyError('till')\n\n    def begin(",
        ),
    ],
    ids=["generate_task", "constructor"],
)
def test_what_a_world_raises_is_no_fault_of_ours(tmp_path, command, old, new):
    path = tmp_path / "odd.py"
    source = Path(starter.__file__).read_text(encoding="utf-8")
    path.write_text(source.replace(old, new))
    refused(opd(command, "odd.py", cwd=tmp_path), "KeyError: 'till'")
