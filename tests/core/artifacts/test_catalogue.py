import os
import time

import pytest

from core.artifacts.catalogue import Catalogue
from core.artifacts.record import RECORD_NAME, Record, dump_record
from core.errors import DamagedRecordError


@pytest.fixture
def ref(store, make_request, build):
    return store.publish(make_request(spec={"x": 1}), build)


@pytest.fixture
def catalogue(store, ref):
    return Catalogue(store.root)


@pytest.fixture
def alter(store, ref):
    """Change fields of the published record."""

    def change(**fields):
        path = store.path(ref) / RECORD_NAME
        record = store.record(ref).model_dump(mode="json")
        path.write_bytes(dump_record(Record.model_validate({**record, **fields})))

    return change


def test_a_key_is_located_with_and_without_its_kind(catalogue, store, ref):
    assert catalogue.locate(ref.key, "rollouts") == [store.path(ref)]
    assert catalogue.locate(ref.key) == [store.path(ref)]
    assert catalogue.locate(ref.key, "students") == []
    assert catalogue.locate("0" * 16) == []
    assert catalogue.kinds() == ["rollouts"]
    assert catalogue.directories("rollouts") == [store.path(ref)]


def test_what_appears_or_goes_is_noticed_at_once(catalogue, store, ref):
    new = store.root / "rollouts" / f"other-{'1' * 16}"
    assert catalogue.locate("1" * 16) == []
    new.mkdir()
    assert catalogue.locate("1" * 16) == [new]
    new.rmdir()
    assert catalogue.locate("1" * 16) == []


def test_a_change_within_one_tick_of_the_clock_is_noticed(catalogue, store, ref):
    tick = time.time_ns() + 10**10  # as a coarse clock leaves it: equal before and after
    os.utime(store.root / "rollouts", ns=(tick, tick))
    assert catalogue.locate("1" * 16) == []
    new = store.root / "rollouts" / f"other-{'1' * 16}"
    new.mkdir()
    os.utime(store.root / "rollouts", ns=(tick, tick))
    assert catalogue.locate("1" * 16) == [new]


def test_a_settled_directory_is_listed_once(catalogue, store, ref, age, watch):
    age(store.root / "rollouts")
    listed = []
    watch(lambda name, path: listed.append(path.name) if name == "entries" else None)
    for _ in range(3):
        catalogue.locate(ref.key, "rollouts")
    assert listed == ["rollouts"]


def test_a_settled_record_is_read_once(catalogue, store, ref, age, watch):
    age(store.path(ref))
    read = []
    watch(lambda name, path: read.append(path.name) if name == "read_file" else None)
    assert catalogue.record(store.path(ref)) is catalogue.record(store.path(ref))
    assert read == [RECORD_NAME]


def test_a_kind_that_is_a_link_holds_nothing(store, ref, tmp_path):
    moved = tmp_path / "elsewhere"
    (store.root / "rollouts").rename(moved)
    (store.root / "rollouts").symlink_to(moved)
    assert Catalogue(store.root).locate(ref.key) == []
    assert Catalogue(store.root).locate(ref.key, "rollouts") == []


def test_an_artifact_that_is_a_link_is_damaged(catalogue, store, ref, tmp_path):
    store.path(ref).rename(tmp_path / "elsewhere")
    store.path(ref).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedRecordError, match="is a link or no directory"):
        catalogue.record(store.path(ref))


def test_a_directory_without_record_holds_nothing(catalogue, store, ref):
    (store.path(ref) / RECORD_NAME).unlink()
    assert catalogue.record(store.path(ref)) is None
    assert catalogue.record(store.root / "rollouts" / "never") is None


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"name": "renamed"}, "belongs to rollouts/renamed-"),
        ({"kind": "students"}, "belongs to students/"),
        ({"payload": {"spec": {"x": 2}}}, "its payload was altered"),
        ({"files": {}}, "its list of files was altered"),
        ({"digest": "0" * 64}, "its list of files was altered"),
    ],
)
def test_a_record_that_contradicts_itself_is_damaged(fields, what, catalogue, store, ref, alter):
    alter(**fields)
    with pytest.raises(DamagedRecordError, match=what):
        catalogue.record(store.path(ref))


def test_a_record_that_is_no_file_is_damaged(catalogue, store, ref):
    path = store.path(ref) / RECORD_NAME
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever
    with pytest.raises(DamagedRecordError, match="not a plain file"):
        catalogue.record(store.path(ref))
