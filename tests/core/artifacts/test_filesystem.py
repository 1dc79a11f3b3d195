import errno
import os
import re
from pathlib import Path

import pytest

from core.artifacts import filesystem
from core.errors import StoreError

ALL = {
    "make_directory": lambda p: filesystem.make_directory(p / "d"),
    "write_file": lambda p: filesystem.write_file(p / "new", [b"x"]),
    "read_file": lambda p: filesystem.read_file(p / "old"),
    "sync_file": lambda p: filesystem.sync_file(p / "old"),
    "sync_directory": filesystem.sync_directory,
    "rename": lambda p: filesystem.rename(p / "old", p / "new"),
    "link": lambda p: filesystem.link(p / "old", p / "new"),
    "remove_file": lambda p: filesystem.remove_file(p / "old"),
    "remove_tree": lambda p: filesystem.remove_tree(p / "tree"),
    "status": lambda p: filesystem.status(p / "old"),
    "entries": filesystem.entries,
}


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def place(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "leaf").write_bytes(b"leaf")
    return tmp_path


def test_what_each_operation_does(place):
    assert filesystem.make_directory(place / "d") is True
    assert filesystem.make_directory(place / "d") is False
    filesystem.write_file(place / "d" / "a", [b"1", bytearray(b"2"), memoryview(b"3")])
    assert filesystem.read_file(place / "d" / "a") == b"123"
    filesystem.link(place / "d" / "a", place / "twin")
    assert filesystem.status(place / "twin").st_nlink == 2
    filesystem.rename(place / "twin", place / "old")
    assert filesystem.read_file(place / "old") == b"123"
    assert [e.name for e in filesystem.entries(place)] == ["d", "old", "tree"]
    filesystem.remove_tree(place / "tree")
    assert filesystem.status(place / "tree") is None


def test_what_is_gone_already_needs_no_removing(place):
    filesystem.remove_file(place / "never")
    filesystem.remove_tree(place / "never")
    assert filesystem.entries(place / "never") == []
    assert filesystem.status(place / "old" / "below-a-file") is None


def test_a_link_is_looked_at_or_through(place):
    (place / "arrow").symlink_to(place / "old")
    assert filesystem.status(place / "arrow").st_size != 3
    assert filesystem.status(place / "arrow", follow=True).st_size == 3


def test_replacing_a_file_leaves_no_temporary_behind(place):
    filesystem.replace_file(place / "old", [b"new"], durable=True)
    assert (place / "old").read_bytes() == b"new"
    assert names(place) == ["old", "tree"]


def test_a_durable_replacement_waits_for_file_and_directory(place, watch):
    seen = []
    watch(lambda name, path: seen.append((name, path.name)))
    filesystem.replace_file(place / "old", [b"new"], durable=True)
    assert [name for name, _ in seen] == ["write_file", "sync_file", "rename", "sync_directory"]
    assert seen[1][1] == seen[0][1] != "old"
    assert seen[3][1] == place.name


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "Free some disk space"),
        (errno.EDQUOT, "disk quota"),
        (errno.EROFS, "read-only: point runtime.store"),
        (errno.EACCES, "owner and permissions"),
        (errno.EIO, "nothing was published"),
        (errno.EMFILE, "Check the disk"),
    ],
)
def test_every_operation_says_what_failed_and_what_to_do(name, number, hint, place, fail):
    with fail(name, number), pytest.raises(StoreError) as caught:
        ALL[name](place)
    lines = str(caught.value).split("\n")
    assert len(lines) == 2
    assert lines[0].startswith(f"{place}")
    assert os.strerror(number) in lines[0]
    assert hint in lines[1]
    assert caught.value.exit_code == 2
    assert names(place) == ["old", "tree"]


@pytest.mark.parametrize("operation", ["write_file", "sync_file", "rename"])
def test_a_failed_replacement_keeps_the_old_file(operation, place, fail):
    with fail(operation, errno.ENOSPC), pytest.raises(StoreError, match="No space left"):
        filesystem.replace_file(place / "old", [b"new"], durable=True)
    assert (place / "old").read_bytes() == b"old"
    assert names(place) == ["old", "tree"]


def test_a_file_in_the_place_of_a_directory_is_refused(place):
    with pytest.raises(StoreError, match="make directory: File exists"):
        filesystem.make_directory(place / "old")
    with pytest.raises(StoreError, match="Not a directory"):
        filesystem.entries(place / "old")


def test_a_missing_file_cannot_be_read(place):
    with pytest.raises(StoreError, match="No such file"):
        filesystem.read_file(place / "never")


def test_a_directory_without_fsync_is_tolerated_and_a_failing_disk_is_not(place, monkeypatch):
    def refuse(number):
        def fsync(_descriptor):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fsync)

    refuse(errno.EINVAL)
    filesystem.sync_directory(place)
    with pytest.raises(StoreError, match="Invalid argument"):
        filesystem.sync_file(place / "old")
    refuse(errno.EIO)
    with pytest.raises(StoreError, match="Input/output error"):
        filesystem.sync_directory(place)


def test_missing_parents_are_made_and_present_ones_left_alone(tmp_path):
    filesystem.make_directories(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "kept").write_text("x")
    filesystem.make_directories(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "kept").read_text() == "x"
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError):
        filesystem.make_directories(tmp_path / "file" / "below")


def test_nothing_else_in_the_package_writes_to_the_disk():
    writing = re.compile(
        r"\.(write_text|write_bytes|unlink|mkdir|hardlink_to|fsync)\(|(?<!filesystem)\.rename\("
    )
    package = Path(filesystem.__file__).parent
    sources = [path for path in package.glob("*.py") if path.name != "filesystem.py"]
    found = {path.name: writing.findall(path.read_text()) for path in sources}
    assert len(found) >= 10
    assert [name for name, calls in found.items() if calls] == []
