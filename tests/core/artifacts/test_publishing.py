import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.artifacts.code import CodeDigest
from core.artifacts.contents import content_digest, hash_file
from core.artifacts.record import NumericClass
from core.artifacts.store import Store
from core.errors import KeyEncodingError, StoreError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def ref(store, make_request, build):
    return store.publish(make_request(), build)


@pytest.fixture
def forbidden():
    def never(_directory):
        raise AssertionError("built although it was there")

    return never


def quarantined(store):
    return [path.name for path in (store.root / ".quarantine").iterdir()]


def test_the_record_says_what_was_built_and_from_what(store, make_request, build):
    parent = store.publish(make_request(kind="student", spec={"x": 0}), build)
    request = make_request(
        spec={"x": 1},
        parents={"student": parent},
        code=CodeDigest(digest="c", functions={"core.f": "1"}),
        numeric_class=NumericClass(device="cpu", physical_rows=8, width=64, chunk=256, threads=1),
        seeds={"run": 7},
        labels={"note": "first"},
    )
    record = store.record(store.publish(request, build))
    assert record.schema_version == 2
    assert (record.kind, record.name, record.task, record.version) == (
        "rollouts",
        "toy",
        "sample",
        "1",
    )
    assert record.payload == {
        "task": "sample",
        "version": "1",
        "spec": {"x": 1},
        "parents": {"student": parent.digest},
    }
    assert record.parents == {"student": parent}
    assert sorted(record.files) == ["inner/weights.bin", "rows.jsonl"]
    assert record.files["inner/weights.bin"].size == 64
    assert record.digest == content_digest(
        {name: hash_file(store.path(record.ref) / name) for name in record.files}
    )
    assert record.metrics == {"rows": 1}
    assert record.code.functions == {"core.f": "1"}
    assert record.numeric_class.physical_rows == 8
    assert record.provenance.seeds == {"run": 7}
    assert 0 <= record.provenance.wall_time_s < 5
    assert record.labels == {"note": "first"}


def test_equal_bytes_have_one_digest_whenever_they_are_built(store, make_request, build):
    first = store.publish(make_request(spec={"x": 1}), build)
    second = store.publish(make_request(spec={"x": 2}), build)
    assert first.digest == second.digest
    assert first.key != second.key


def test_the_store_is_private_and_leaves_nothing_open(store, ref):
    assert store.root.stat().st_mode & 0o777 == 0o700
    for area in (".staging", ".locks", ".quarantine"):
        assert not any((store.root / area).iterdir())


def test_a_rebuild_with_other_bytes_is_reported(store, ref, make_request, caplog):
    (store.path(ref) / "rows.jsonl").unlink()
    rebuilt = store.publish(make_request(), lambda d: (d / "rows.jsonl").write_bytes(b"x") and {})
    assert rebuilt.digest != ref.digest
    assert "rebuilt with other bytes than before" in caplog.text
    assert len(store.verify(ref)) == 1
    assert store.verify(rebuilt) == []


def test_strict_code_makes_other_code_a_miss(store, make_request, build, forbidden):
    old, new = (CodeDigest(digest=d, functions={}) for d in ("old", "new"))
    first = store.publish(make_request(code=old), build)
    assert store.publish(make_request(code=new), forbidden) == first
    assert store.find(first.key, code=new) is None
    rebuilt = store.publish(make_request(code=new, strict_code=True), build)
    assert rebuilt == first
    assert store.record(rebuilt).code == new
    assert store.publish(make_request(code=new, strict_code=True), forbidden) == first
    assert len(quarantined(store)) == 1


# --- refusals ---------------------------------------------------------------------------------


def _link(directory):
    (directory / "arrow").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("bad", "error", "what"),
    [
        (_link, StoreError, "arrow: an artifact holds files"),
        (lambda d: None, StoreError, "the builder wrote no file"),
        (
            lambda d: ((d / "a").write_bytes(b"") and None) or {"x": float("nan")},
            KeyEncodingError,
            r"metrics\.x is nan",
        ),
        (lambda d: 1 / 0, ZeroDivisionError, "division"),
        (
            lambda d: (d / "no" / "where").write_bytes(b""),
            StoreError,
            "where: cannot write: No such",
        ),
        (lambda d: Path("/nonexistent").read_bytes(), FileNotFoundError, "nonexistent"),
    ],
)
def test_a_failed_build_publishes_nothing_and_leaves_nothing(bad, error, what, store, make_request):
    with pytest.raises(error, match=what):
        store.publish(make_request(), bad)
    assert not any((store.root / ".staging").iterdir())
    assert not any((store.root / ".locks").iterdir())
    assert not (store.root / "rollouts").exists()


def test_a_bad_address_is_refused_before_anything_is_built(store, make_request, forbidden):
    with pytest.raises(StoreError, match="not a valid kind or name"):
        store.publish(make_request(name="a/b"), forbidden)


def test_a_file_in_the_place_of_the_store_is_refused(tmp_path, make_request, build):
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(StoreError, match="store: cannot make directory: File exists"):
        Store(tmp_path / "store").publish(make_request(), build)


@pytest.mark.parametrize(
    ("operation", "number", "what"),
    [
        ("write_file", errno.ENOSPC, "No space left on device\nFree some disk space"),
        ("sync_file", errno.EIO, "Input/output error\nThe disk reported a failure"),
        ("sync_directory", errno.EIO, "Input/output error\nThe disk reported a failure"),
        ("rename", errno.EXDEV, "cross-device link\nKeep the whole store on one file system"),
        ("make_directory", errno.EROFS, "Read-only file system\nThe file system is read-only"),
        ("lock", errno.EACCES, "Permission denied\nCheck the owner"),
    ],
)
def test_a_failing_disk_publishes_nothing_and_says_what_to_do(
    operation, number, what, store, make_request, build, fail
):
    with fail(operation, number), pytest.raises(StoreError, match=what):
        store.publish(make_request(), build)
    assert store.find(make_request().identity.key) is None
    assert store.verify(store.publish(make_request(), build), deep=True) == []


def test_a_disk_that_fills_up_while_building_is_a_store_error(store, make_request):
    def full(_directory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as write() does: without a name

    with pytest.raises(StoreError, match="cannot write: No space left on device\nFree some"):
        store.publish(make_request(), full)


def test_a_builder_may_not_write_the_record(store, make_request):
    with pytest.raises(StoreError, match=r"a record\.json of its own"):
        store.publish(make_request(), lambda d: (d / "record.json").write_bytes(b"x") and {})


# --- other processes --------------------------------------------------------------------------

BUILDER = """
import sys, time
from pathlib import Path
from core.artifacts.request import PublishRequest
from core.artifacts.store import Store

def build(directory):
    print("building", flush=True)
    (directory / "rows.jsonl").write_text("{}\\n")
    time.sleep(float(sys.argv[2]))

request = PublishRequest(kind="rollouts", name="toy", task="sample", version="1", spec={})
print(Store(sys.argv[1]).publish(request, build).digest, flush=True)
"""


def start(store, seconds):
    command = [sys.executable, "-c", BUILDER, str(store.root), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_two_processes_build_one_key_once(store, make_request):
    one, two = start(store, 0.5), start(store, 0.5)
    said = [one.communicate(timeout=30)[0].split(), two.communicate(timeout=30)[0].split()]
    assert (one.returncode, two.returncode) == (0, 0)
    assert sum("building" in words for words in said) == 1
    assert said[0][-1] == said[1][-1] == store.find(make_request().identity.key).digest


def test_a_killed_builder_frees_the_way_and_leaves_nothing_behind(store, make_request, build):
    process = start(store, 60)
    assert process.stdout.readline() == "building\n"
    assert store.sweep_staging() == 0
    assert len(list((store.root / ".staging").iterdir())) == 1
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert store.find(make_request().identity.key) is None
    begun = time.perf_counter()
    ref = store.publish(make_request(), build)
    assert time.perf_counter() - begun < 2.0
    assert store.verify(ref, deep=True) == []
    assert not any((store.root / ".staging").iterdir())


def test_a_sweep_removes_what_a_killed_builder_left(store, make_request):
    process = start(store, 60)
    process.stdout.readline()
    process.kill()
    process.communicate()
    assert store.sweep_staging() == 1
    assert not any((store.root / ".staging").iterdir())
    assert not any((store.root / ".locks").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path, make_request, build):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        Store(tmp_path / "locked" / "store").publish(make_request(), build)
