import json
import shutil

import pytest

from core.artifacts.external import copy_external, read_external
from core.artifacts.record import RECORD_NAME, dump_record, load_record
from core.errors import DamagedRecordError, StoreError


@pytest.fixture
def outside(store, make_request, build, tmp_path):
    """A copy of an artifact under a name of no store."""
    ref = store.publish(make_request(), build)
    return shutil.copytree(store.path(ref), tmp_path / "a copy")


def test_a_copy_is_read_by_its_record_and_copied_file_for_file(outside, tmp_path):
    (outside / "stranger").write_text("stays behind")
    record = read_external(outside, "rollouts")
    target = tmp_path / "target"
    target.mkdir()
    copy_external(outside, record, target)
    copied = {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()}
    assert copied == set(record.files) == {"rows.jsonl", "inner/weights.bin"}


# ---------------------------------------------------------------- refusals


def test_a_directory_without_a_record_and_another_kind_are_refused(outside, tmp_path):
    with pytest.raises(StoreError, match=r"record\.json: does not exist"):
        read_external(tmp_path, "rollouts")
    with pytest.raises(StoreError, match="is of kind rollouts, not dataset"):
        read_external(outside, "dataset")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"payload": {"spec": 1}}, "its payload was altered"),
        ({"digest": "0" * 64}, "its list of files was altered"),
        ({"pruned": True}, "removed to save space"),
        ({"shed": ("rows.jsonl",)}, "removed to save space"),
    ],
)
def test_a_record_that_does_not_fit_itself_is_refused(outside, changes, what):
    path = outside / RECORD_NAME
    path.write_bytes(dump_record(load_record(path).model_copy(update=changes)))
    with pytest.raises(StoreError, match=what):
        read_external(outside, "rollouts")


def test_a_record_with_a_broken_seal_says_what_to_name_instead(outside):
    path = outside / RECORD_NAME
    plain = json.loads(path.read_text()) | {"name": "other"}
    path.write_text(json.dumps(plain, sort_keys=True, indent=1) + "\n")
    with pytest.raises(DamagedRecordError, match="seal") as error:
        read_external(outside, "rollouts")
    assert error.value.hint.startswith("Name the directory")


@pytest.mark.parametrize("name", ["rows.jsonl", "inner/weights.bin"])
def test_an_altered_a_missing_and_a_linked_file_are_named(outside, tmp_path, name):
    record = read_external(outside, "rollouts")
    path = outside / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match=f"{name}: content was altered"):
        copy_external(outside, record, tmp_path / "one")
    path.unlink()
    with pytest.raises(StoreError, match=f"{name}: missing"):
        copy_external(outside, record, tmp_path / "two")
    (tmp_path / "kept").write_bytes(content)
    path.symlink_to(tmp_path / "kept")
    with pytest.raises(StoreError, match=f"{name}: is not a plain file"):
        copy_external(outside, record, tmp_path / "three")
