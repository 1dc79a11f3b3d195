import hashlib
import os
import subprocess

import pytest

from core.artifacts.contents import content_digest, hash_file, list_contents
from core.artifacts.record import FileEntry
from core.errors import StoreError


def test_the_digest_is_that_of_the_lines_of_sha256sum(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"1")
    (tmp_path / "a").write_bytes(b"22")
    files = {name: hash_file(tmp_path / name) for name in list_contents(tmp_path)[0]}
    command = "find . -type f | sed 's|^./||' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert content_digest(files) == done.stdout.split()[0]


def test_the_digest_by_hand():
    entries = {
        name: FileEntry(sha256=digit * 64, size=1) for name, digit in [("b", "2"), ("a", "1")]
    }
    text = f"{'1' * 64}  a\n{'2' * 64}  b\n"
    assert content_digest(entries) == hashlib.sha256(text.encode()).hexdigest()


def test_hash_and_size_of_a_file(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    found = hash_file(tmp_path / "f")
    assert found.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert found.size == 3


def test_files_are_listed_sorted_and_directories_inner_first(tmp_path):
    for name in ("z", "m/n/deep", "m/a", "record.json", "m/record.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    files, directories = list_contents(tmp_path)
    assert files == ["m/a", "m/n/deep", "m/record.json", "z"]
    assert directories == [tmp_path / "m" / "n", tmp_path / "m", tmp_path]


def test_a_name_changes_the_digest_and_a_time_does_not(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    before = content_digest({"a": hash_file(path)})
    os.utime(path, (1, 1))
    assert content_digest({"a": hash_file(path)}) == before
    assert content_digest({"b": hash_file(path)}) != before


@pytest.mark.parametrize("target", ["inside", "/etc/hostname", "nowhere", "../outside"])
def test_a_symbolic_link_is_refused(target, tmp_path):
    (tmp_path / "inside").write_bytes(b"x")
    (tmp_path / "arrow").symlink_to(target)
    with pytest.raises(StoreError, match="arrow: an artifact holds files"):
        list_contents(tmp_path)


def test_a_link_to_a_directory_and_a_pipe_are_refused(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="a link or a special file"):
        list_contents(tmp_path)
    (tmp_path / "loop").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="a link or a special file"):
        list_contents(tmp_path)


@pytest.mark.parametrize("name", [b"new\nline", b"back\\slash", b"\xff"])
def test_a_name_that_not_every_system_can_store_is_refused(name, tmp_path):
    (tmp_path / os.fsdecode(name)).write_bytes(b"")
    with pytest.raises(StoreError, match="not every system can store"):
        list_contents(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(StoreError, match="gone: cannot hash file: No such file"):
        hash_file(tmp_path / "gone")
