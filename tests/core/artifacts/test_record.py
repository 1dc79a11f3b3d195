import json

import pytest
from pydantic import ValidationError

from core.artifacts.record import (
    SCHEMA_VERSION,
    ArtifactRef,
    FileEntry,
    Provenance,
    Record,
    check_relative_path,
    dump_record,
    load_record,
)
from core.errors import DamagedRecordError, StoreError, StoreSchemaError


@pytest.fixture
def record():
    origin = Provenance(python="3.11.7", started="2026-01-01T00:00:00.000+00:00", wall_time_s=1.5)
    return Record(
        kind="rollouts",
        name="toy-cycle1",
        task="sample",
        version="1",
        key="0123456789abcdef",
        payload={"spec": {"x": 1, "y": 1.0}},
        files={"a/b.json": FileEntry(sha256="1" * 64, size=3)},
        digest="2" * 64,
        provenance=origin,
        labels={"note": "é\ud800"},
    )


def test_a_record_survives_its_file(record, tmp_path):
    path = tmp_path / "record.json"
    path.write_bytes(dump_record(record))
    assert load_record(path) == record
    assert json.loads(path.read_text())["schema_version"] == SCHEMA_VERSION == 2
    assert path.read_bytes().endswith(b"}\n")
    assert type(load_record(path).payload["spec"]["x"]) is int
    assert type(load_record(path).payload["spec"]["y"]) is float


def test_no_byte_of_a_record_can_change_unseen(record, tmp_path):
    """Metrics, origin and labels included, and white space between them."""
    path, whole = tmp_path / "record.json", dump_record(record)
    for place in range(len(whole)):
        other = whole[place] ^ 1
        path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
        with pytest.raises((DamagedRecordError, StoreSchemaError)):
            load_record(path)


def test_a_record_that_would_fill_the_memory_is_not_read(tmp_path):
    path = tmp_path / "record.json"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: it takes no room on the disk
    with pytest.raises(DamagedRecordError, match="no record is that large"):
        load_record(path)


def test_a_reference_names_a_directory_and_survives_json(record):
    assert record.ref.address == "rollouts/toy-cycle1-0123456789abcdef"
    assert ArtifactRef.model_validate_json(record.ref.model_dump_json()) == record.ref


@pytest.mark.parametrize("path", ["a", "a.json", "inner/b.bin", "..a", "é/ü", "a b"])
def test_plain_relative_paths_are_taken(path):
    assert check_relative_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\\b", "x\ny", "a\x00", "\ud800"],
)
def test_paths_that_leave_the_artifact_are_refused(path):
    with pytest.raises(ValueError, match=r"artifact|character"):
        check_relative_path(path)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "../etc"},
        {"kind": "Upper"},
        {"name": "a/b"},
        {"name": ".hidden"},
        {"name": ""},
        {"key": "xyz"},
        {"digest": "1"},
        {"unknown": 1},
    ],
)
def test_a_reference_that_could_point_outside_is_refused(change, record):
    with pytest.raises(ValidationError):
        ArtifactRef(**{**record.ref.model_dump(), **change})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"files": {"../x": {"sha256": "1" * 64, "size": 1}}}, "files"),
        ({"payload": None}, "payload"),
        ({"surprise": 1}, "surprise"),
        ({"metrics": {"x": float("nan")}}, "not JSON"),
    ],
)
def test_an_altered_record_is_damaged(change, what, record, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**record.model_dump(mode="json"), **change}))
    with pytest.raises(DamagedRecordError, match=what):
        load_record(path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_record_is_damaged(data, tmp_path):
    path = tmp_path / "record.json"
    path.write_bytes(data)
    with pytest.raises(DamagedRecordError, match=r"record.json: is not"):
        load_record(path)


def test_every_cut_of_a_record_is_damaged(record, tmp_path):
    path = tmp_path / "record.json"
    data = dump_record(record)
    for end in range(0, len(data) - 2, 7):
        path.write_bytes(data[:end])
        with pytest.raises(DamagedRecordError):
            load_record(path)


def test_a_newer_schema_names_the_file_and_the_way_out(record, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"schema_version": 3, "fields": "unknown to us"}))
    with pytest.raises(StoreSchemaError, match=r"record.json: schema version 3 .*\nUpdate opdflow"):
        load_record(path)


def test_a_missing_record_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match="cannot read file"):
        load_record(tmp_path / "record.json")
