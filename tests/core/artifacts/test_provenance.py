import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.artifacts import provenance
from core.artifacts.record import Provenance


def git(repo, *arguments):
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
    done = subprocess.run(command, cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path):
    """A checkout with one committed source."""
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.py").write_text("x = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


@pytest.fixture
def ask():
    """Capture anew: the answer is kept per process."""

    def commit_and_dirty(repo):
        provenance._commit.cache_clear()
        found = provenance.capture(repo)
        return found["commit"], found["dirty"]

    yield commit_and_dirty
    provenance._commit.cache_clear()


def test_a_clean_checkout_has_its_commit(repo, ask):
    assert ask(repo) == (git(repo, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize("name", ["core/a.py", "core/new.py", "tasks/new.py"])
def test_an_edited_or_new_source_is_dirty(name, repo, ask):
    (repo / name).parent.mkdir(exist_ok=True)
    (repo / name).write_text("x = 2\n")
    assert ask(repo) == (git(repo, "rev-parse", "HEAD"), True)


def test_what_is_no_source_is_not_dirty(repo, ask):
    (repo / "notes.txt").write_text("x")
    assert ask(repo)[1] is False


def test_a_checkout_without_a_commit_has_none(tmp_path, ask):
    git(tmp_path, "init", "-q")
    assert ask(tmp_path) == (None, False)


def test_a_directory_inside_a_strangers_checkout_has_no_commit(repo, ask):
    inside = repo / "venv" / "site-packages"
    inside.mkdir(parents=True)
    assert ask(inside) == (None, None)


def test_without_git_there_is_no_commit(repo, ask, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert ask(repo) == (None, None)


def test_a_broken_checkout_has_no_commit(tmp_path, ask):
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert ask(tmp_path) == (None, None)


def test_what_is_captured_fits_a_record():
    found = Provenance(started="now", wall_time_s=0.0, **provenance.capture())
    assert found.python == platform.python_version()
    assert found.packages["pydantic"].count(".") >= 1
    assert found.hardware["cpu_count"] == os.cpu_count()
    assert set(found.hardware) == {"system", "machine", "processor", "cpu_count", "byteorder"}
    assert set(found.packages) <= set(provenance.PACKAGES)


def test_the_switches_of_torch_are_captured_where_it_is_in_use(monkeypatch):
    torch = pytest.importorskip("torch")
    found = provenance.capture()["arithmetic"]
    assert found["deterministic_algorithms"] is torch.are_deterministic_algorithms_enabled()
    assert {"matmul_tf32", "cudnn_tf32", "cudnn_benchmark", "flash_attention"} <= set(found)
    monkeypatch.delitem(sys.modules, "torch")
    assert provenance.capture()["arithmetic"] == {}


def test_nothing_names_the_person_or_the_host():
    text = json.dumps(provenance.capture())
    for private in (platform.node(), str(Path.home()), str(provenance.ROOT)):
        assert private not in text


def test_it_is_captured_once_per_process():
    provenance.capture()
    begun = time.process_time()
    for _ in range(100):
        provenance.capture()
    assert (time.process_time() - begun) / 100 < 0.001
