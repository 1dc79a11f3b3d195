"""Contracts with Prefect's internals, on which the policy stands."""

import pytest
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore

from core.artifacts.record import ArtifactRef
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
