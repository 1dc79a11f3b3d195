"""Contracts with Prefect's internals, on which the policy stands, and what comes of them."""

import pytest
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore

from core.artifacts.record import ArtifactRef
from tasks.caching import open_store
from tasks.policy import NOTHING, point
from tasks.serializer import StrictJSON

REF = ArtifactRef(kind="number", name="n", key="0" * 16, digest="a" * 64)
OTHER = REF.model_copy(update={"digest": "b" * 64})
KEY = "number-0000000000000000"


@pytest.fixture
def results(tmp_path):
    return ResultStore(
        result_storage=LocalFileSystem(basepath=str(tmp_path)),
        serializer=StrictJSON(),
        cache_result_in_memory=False,
    )


def test_a_pointer_is_what_prefect_reads_back(results):
    point(results, KEY, REF)
    assert results.exists(KEY)
    assert results.read(KEY).result == REF


def test_a_pointer_is_moved(results):
    point(results, KEY, REF)
    point(results, KEY, OTHER)
    assert results.read(KEY).result == OTHER


def test_a_pointer_to_nothing_is_no_record_for_prefect(results, tmp_path):
    point(results, KEY, REF)
    point(results, KEY, None)
    assert (tmp_path / KEY).read_bytes() == NOTHING
    assert not results.exists(KEY)


def test_where_there_is_nothing_nothing_is_written(results, tmp_path):
    point(results, KEY, None)
    assert list(tmp_path.iterdir()) == []


def test_a_right_pointer_is_left_alone(results, tmp_path):
    point(results, KEY, REF)
    before = (tmp_path / KEY).stat()
    point(results, KEY, REF)
    assert (tmp_path / KEY).stat().st_mtime_ns == before.st_mtime_ns


def test_prefect_would_write_the_same_bytes(results, tmp_path):
    record = results.create_result_record(REF, KEY)
    results.persist_result_record(record)
    written = (tmp_path / KEY).read_bytes()
    point(results, KEY, REF)
    assert (tmp_path / KEY).read_bytes() == written == record.serialize()


# ---------------------------------------------------------------- in a flow

server = pytest.mark.server


@server
def test_the_pointer_that_prefect_writes_is_the_one_that_we_would(in_flow, call, pointer):
    in_flow(call(number=11))
    before = pointer(11).stat()
    in_flow(call(number=11))
    after = pointer(11).stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@server
@pytest.mark.parametrize("content", [None, b"", b"garbage", b"{}"])
def test_a_lost_or_broken_pointer_is_still_cached(in_flow, call, counting, pointer, content):
    first, _ = in_flow(call(number=12))
    pointer(12).unlink() if content is None else pointer(12).write_bytes(content)
    again, runs = in_flow(call(number=12))
    assert runs == {"write_number one": "Cached"}
    assert again.result() == first.result()
    assert counting.calls == [12]


@server
def test_a_pointer_to_other_bytes_is_replaced(in_flow, call, counting, pointer):
    first, _ = in_flow(call(number=17))
    text = pointer(17).read_text()
    pointer(17).write_text(text.replace(first.result().digest, "0" * 64))
    again, runs = in_flow(call(number=17))
    assert (again.result(), runs) == (first.result(), {"write_number one": "Cached"})


class Bomb:
    """Unpickling it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@server
@pytest.mark.parametrize("artifact_survives", [True, False])
def test_a_foreign_pointer_is_replaced_without_being_decoded(
    in_flow, call, runtime, pointer, tmp_path, artifact_survives
):
    from prefect.results import ResultRecord, ResultRecordMetadata
    from prefect.serializers import PickleSerializer

    first, _ = in_flow(call(number=13))
    metadata = ResultRecordMetadata(serializer=PickleSerializer(), storage_key="x")
    bomb = ResultRecord(metadata=metadata, result=Bomb(tmp_path / "ran")).serialize()
    pointer(13).write_bytes(bomb)
    if not artifact_survives:
        (open_store(runtime.store).path(first.result()) / "number.txt").unlink()
    again, runs = in_flow(call(number=13))
    assert runs == {"write_number one": "Cached" if artifact_survives else "Completed"}
    assert again.result() == first.result()
    assert not (tmp_path / "ran").exists()
    assert b"pickle" not in pointer(13).read_bytes()


@server
@pytest.mark.parametrize("damage", ["remove", "alter", "unrecord"])
def test_a_damaged_artifact_is_rebuilt(in_flow, call, counting, runtime, damage):
    first, _ = in_flow(call(number=14))
    directory = open_store(runtime.store).path(first.result())
    if damage == "remove":
        (directory / "number.txt").unlink()
    elif damage == "alter":
        (directory / "number.txt").write_text("15")
    else:
        (directory / "record.json").unlink()
    again, runs = in_flow(call(number=14))
    assert runs == {"write_number one": "Completed"}
    assert again.result() == first.result()
    assert (directory / "number.txt").read_text() == "14"
    assert counting.calls == [14, 14]
