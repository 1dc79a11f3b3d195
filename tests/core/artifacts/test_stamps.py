import json
import os

import pytest

from core.artifacts import contents, filesystem
from core.artifacts.record import FileEntry, Provenance, Record
from core.artifacts.stamps import Stamps
from core.errors import StoreError


@pytest.fixture
def artifact(tmp_path, age):
    directory = tmp_path / "artifact"
    directory.mkdir()
    (directory / "a").write_bytes(b"aaaa")
    (directory / "b").write_bytes(b"bb")
    age(directory)
    (tmp_path / "stamps").mkdir()
    return directory


@pytest.fixture
def record(artifact):
    files = {name: contents.hash_file(artifact / name) for name in ("a", "b")}
    return Record(
        kind="rollouts",
        name="toy",
        task="t",
        version="1",
        key="0" * 16,
        payload={},
        files=files,
        digest=contents.content_digest(files),
        provenance=Provenance(python="3", started="now", wall_time_s=0.0),
    )


@pytest.fixture
def stamps(tmp_path):
    return Stamps(tmp_path / "stamps")


@pytest.fixture
def hashed(watch):
    """Names of the files that were hashed since."""
    seen = []
    watch(lambda name, path: seen.append(path.name) if name == "hash_file" else None)
    return seen


def test_a_file_is_hashed_once(stamps, artifact, record, hashed, tmp_path):
    assert stamps.problems(artifact, record, deep=False) == []
    assert hashed == ["a", "b"]
    assert stamps.problems(artifact, record, deep=False) == []
    assert hashed == ["a", "b"]
    assert Stamps(tmp_path / "stamps").problems(artifact, record, deep=False) == []
    assert hashed == ["a", "b"]


def test_a_deep_check_hashes_whatever_the_stamps_say(stamps, artifact, record, hashed):
    stamps.problems(artifact, record, deep=False)
    assert stamps.problems(artifact, record, deep=True) == []
    assert hashed == ["a", "b", "a", "b"]


def test_a_touched_file_is_hashed_again_and_still_sound(stamps, artifact, record, hashed):
    stamps.problems(artifact, record, deep=False)
    os.utime(artifact / "a", (5, 5))
    assert stamps.problems(artifact, record, deep=False) == []
    assert hashed == ["a", "b", "a"]


def test_what_each_damage_is_called(stamps, artifact, record):
    stamps.problems(artifact, record, deep=False)
    (artifact / "a").write_bytes(b"aaaX")
    (artifact / "b").write_bytes(b"b")
    assert stamps.problems(artifact, record, deep=False) == [
        f"{record.ref.address}/a: content was altered",
        f"{record.ref.address}/b: has 1 bytes instead of 2",
    ]
    (artifact / "a").unlink()
    (artifact / "b").unlink()
    (artifact / "b").mkdir()
    assert stamps.problems(artifact, record, deep=False) == [
        f"{record.ref.address}/a: missing",
        f"{record.ref.address}/b: is not a plain file",
    ]


def test_only_a_deep_check_sees_an_edit_that_restores_the_time(stamps, artifact, record):
    stamps.problems(artifact, record, deep=False)
    before = (artifact / "a").stat()
    (artifact / "a").write_bytes(b"aaaX")
    os.utime(artifact / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert stamps.problems(artifact, record, deep=False) == []
    assert len(stamps.problems(artifact, record, deep=True)) == 1


def test_a_file_as_young_as_the_clock_is_coarse_gets_no_stamp(stamps, artifact, record, hashed):
    os.utime(artifact / "a")
    stamps.problems(artifact, record, deep=False)
    stamps.problems(artifact, record, deep=False)
    assert hashed == ["a", "b", "a"]


def test_what_was_just_hashed_can_be_noted(stamps, artifact, record, hashed):
    later = (artifact / "a").stat().st_mtime_ns + 10**9
    stamps.note(artifact, record, later)
    assert stamps.problems(artifact, record, deep=False) == []
    assert hashed == []


def test_what_changed_while_it_was_hashed_is_not_noted(stamps, artifact, record, hashed):
    stamps.note(artifact, record, (artifact / "a").stat().st_mtime_ns)
    stamps.problems(artifact, record, deep=False)
    assert hashed == ["a", "b"]


def test_a_forgotten_artifact_is_hashed_again(stamps, artifact, record, hashed, tmp_path):
    stamps.problems(artifact, record, deep=False)
    stamps.forget(record.ref)
    assert not any((tmp_path / "stamps").iterdir())
    stamps.problems(artifact, record, deep=False)
    assert hashed == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": 1}', '{"a": [1, 2]}', '{"a": ["x", 1, 1, 1]}']
)
def test_an_unreadable_stamp_is_ignored(text, stamps, artifact, record, hashed, tmp_path):
    stamps.problems(artifact, record, deep=False)
    file = next((tmp_path / "stamps").iterdir())
    file.write_text(text)
    assert Stamps(tmp_path / "stamps").problems(artifact, record, deep=False) == []
    assert hashed == ["a", "b", "a", "b"]


def test_a_stamp_for_other_bytes_is_not_trusted(artifact, record, stamps, tmp_path):
    stamps.problems(artifact, record, deep=False)
    file = next((tmp_path / "stamps").iterdir())
    assert json.loads(file.read_text())["a"][2:] == [4, record.files["a"].sha256]
    other = record.model_copy(update={"files": {"a": FileEntry(sha256="1" * 64, size=4)}})
    assert stamps.problems(artifact, other, deep=False) == [
        f"{record.ref.address}/a: content was altered"
    ]


def test_a_read_only_store_is_checked_without_stamps(stamps, artifact, record, monkeypatch):
    def refuse(path, *_args, **_options):
        raise StoreError(f"{path}: Read-only file system", "")

    monkeypatch.setattr(filesystem, "replace_file", refuse)
    assert stamps.problems(artifact, record, deep=False) == []
