import subprocess
import sys

import pytest

from core.artifacts import filesystem
from core.artifacts.faults import Fault, install
from core.artifacts.store import Store
from core.errors import StoreError


@pytest.fixture
def fault(monkeypatch):
    """Return f(kind, at): a fault in place until the test ends."""
    monkeypatch.setattr(filesystem, "announce", filesystem.announce)

    def put(kind, at=0):
        made = Fault(kind, at)
        install(made)
        return made

    return put


def publish(store, make_request):
    return store.publish(make_request(), write)


def write(out):
    filesystem.write_file(out / "a.txt", [b"whole"])


def test_operations_that_change_the_disk_are_counted(fault, tmp_path, make_request):
    counter = fault("none")
    publish(Store(tmp_path / "store"), make_request)
    assert counter.seen > 10
    seen = counter.seen
    filesystem.read_file(next((tmp_path / "store").glob("*/*/a.txt")))
    assert counter.seen == seen


@pytest.mark.parametrize("kind", ["full_disk", "failed_sync"])
def test_a_disk_that_fails_at_any_operation_leaves_the_whole_artifact_or_a_refusal(
    fault, tmp_path, make_request, kind
):
    counter = fault("none")
    publish(Store(tmp_path / "whole"), make_request)
    for at in range(1, counter.seen + 1):
        fault(kind, at)
        store = Store(tmp_path / f"store{at}")
        try:
            ref = publish(store, make_request)
        except StoreError as error:
            assert str(tmp_path) in error.message
            # After the rename it is whole, though nobody knows whether the disk has the rename.
            found = [record.ref for record in store.siblings("rollouts")]
            assert [store.verify(ref, deep=True) for ref in found] in ([], [[]])
        else:
            assert store.verify(ref, deep=True) == []
        fault("none")
        ref = publish(store, make_request)
        assert store.verify(ref, deep=True) == []


CUT = """
import sys
from pathlib import Path
from core.artifacts import filesystem
from core.artifacts.faults import Fault, install
root = Path(sys.argv[1])
install(Fault("power_cut", at=3, seed=int(sys.argv[2])))
filesystem.write_file(root / "synced", [b"x" * 100])
filesystem.sync_file(root / "synced")
install(Fault("power_cut", at=3, seed=int(sys.argv[2])))
filesystem.write_file(root / "unsynced", [b"x" * 100])
filesystem.make_directory(root / "more")
filesystem.make_directory(root / "never")
"""


def test_a_power_cut_takes_what_was_not_synced_and_ends_the_process(tmp_path):
    sizes = set()
    for seed in range(3):
        done = subprocess.run(
            [sys.executable, "-c", CUT, str(tmp_path), str(seed)], check=False, timeout=60
        )
        assert done.returncode == -9
        assert (tmp_path / "synced").stat().st_size == 100
        assert not (tmp_path / "never").exists()
        sizes.add((tmp_path / "unsynced").stat().st_size)
        (tmp_path / "more").rmdir()
    assert len(sizes) > 1
