import json
import os
import random

import pytest

from core.artifacts.record import RECORD_NAME
from core.artifacts.store import Store
from core.artifacts.verification import verify_artifacts, verify_store
from core.errors import StoreError


@pytest.fixture
def parent(store, make_request, build):
    return store.publish(make_request(kind="student", spec={"x": 0}), build)


@pytest.fixture
def child(store, make_request, build, parent):
    return store.publish(make_request(parents={"student": parent}), build)


def _what(store):
    return [str(finding) for finding in verify_store(store.root).findings]


def test_a_sound_store_is_counted_and_has_no_finding(store, child):
    audit = verify_store(store.root)
    assert (audit.artifacts, audit.files, audit.findings) == (2, 4, [])
    assert audit.size == 2 * (64 + len('{"a":1}\n'))


def test_any_byte_of_any_file_is_missed(store, parent, child):
    """Each invariant rests on it: a byte that changes anywhere is found and its file named."""
    rng = random.Random(4)
    files = [path for kind in ("student", "rollouts") for path in (store.root / kind).rglob("*")]
    for path in (path for path in files if path.is_file()):
        whole, before = path.read_bytes(), path.stat()
        for place in rng.sample(range(len(whole)), min(len(whole), 12)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # stamps do not see it
            found = _what(Store(store.root))
            assert any(path.name in line or path.parent.name in line for line in found), place
        path.write_bytes(whole)
    assert _what(store) == []


def test_a_file_that_went_or_came_is_named(store, child):
    (store.path(child) / "rows.jsonl").unlink()
    (store.path(child) / "stranger.bin").write_bytes(b"x")
    assert _what(store) == [
        f"{child.address}/rows.jsonl: missing",
        f"{child.address}/stranger.bin: not in the record",
    ]


def test_a_parent_that_is_gone_breaks_a_link(store, parent, child):
    for path in sorted(store.path(parent).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store.path(parent).rmdir()
    assert _what(store) == [f"{child.address}: its student, {parent.address}, is not in the store"]


def test_a_pruned_artifact_is_no_finding(store, parent, child):
    store.prune(parent)
    audit = verify_store(store.root)
    assert (audit.pruned, audit.findings) == (1, [])


@pytest.mark.parametrize("content", [None, "results.json", "inner/record"])
def test_a_directory_without_any_artifact_is_no_store(tmp_path, content):
    """It is neither sound, nor are its files to be removed."""
    place = tmp_path / "elsewhere"
    (place / "inner").mkdir(parents=True)
    if content is not None:
        (place / content).write_text("{}")
    with pytest.raises(StoreError, match="holds no artifact"):
        verify_store(place)


def test_some_artifacts_can_be_checked_alone(store, parent, child):
    (store.path(parent) / "rows.jsonl").write_bytes(b"{}\n")
    assert verify_artifacts(store.root, [child]).findings == []
    (finding,) = verify_artifacts(store.root, [child, parent, parent]).findings
    assert str(finding) == f"{parent.address}/rows.jsonl: has 3 bytes instead of 8"


# --- a hostile store: nothing outside is read, nothing is executed ---------------------------


@pytest.fixture
def outside(tmp_path):
    """A directory that must not be entered: reading its pipe would wait for ever."""
    place = tmp_path / "outside"
    place.mkdir()
    os.mkfifo(place / RECORD_NAME)
    os.mkfifo(place / "rows.jsonl")
    return place


def test_links_out_of_the_store_are_findings_and_are_not_followed(store, child, outside):
    (store.root / "targets").symlink_to(outside)
    (store.root / "rollouts" / f"evil-{'0' * 16}").symlink_to(outside)
    found = _what(store)
    assert found == [
        "rollouts/evil-0000000000000000: a link, or no directory",
        "targets: a link, or no directory",
    ]
    assert store.find("0" * 16, "rollouts") is None
    assert store.find("0" * 16, "targets") is None


@pytest.mark.parametrize("place", ["rows.jsonl", "inner"])
def test_links_inside_an_artifact_make_it_a_miss(store, child, outside, place):
    inside = store.path(child) / place
    inside.rename(outside / f"moved-{place}")  # the very same bytes, elsewhere
    inside.symlink_to(outside / f"moved-{place}")
    fresh = Store(store.root)
    assert fresh.find(child.key) is None
    assert any("link" in line or "plain file" in line for line in _what(store))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93.",  # a pickle
        b"[" * 200_000,  # nested until a parser's stack ends
        b'{"kind": ' * 100_000,
        b'{"files": {"../../../etc/passwd": {"sha256": "' + b"0" * 64 + b'", "size": 1}}}',
        b"null",
        b"",
    ],
    ids=["pickle", "lists", "objects", "traversal", "null", "empty"],
)
def test_hostile_records_are_refused_by_name(store, child, content):
    path = store.path(child) / RECORD_NAME
    path.write_bytes(content)
    fresh = Store(store.root)
    assert fresh.find(child.key) is None
    (line,) = _what(store)
    assert line.startswith(f"{child.address}: record.json: ")


def test_a_record_whose_files_climb_is_refused_even_with_a_fitting_seal(store, child):
    from core.artifacts.record import dump_record

    record = store.record(child)
    entry = record.files["rows.jsonl"]
    climbing = record.model_copy(update={"files": {"../../outside": entry}})
    (store.path(child) / RECORD_NAME).write_bytes(dump_record(climbing))
    assert json.loads((store.path(child) / RECORD_NAME).read_text())["seal"]
    assert Store(store.root).find(child.key) is None
    assert "not a plain path" in _what(store)[0]


def test_no_store_at_all_is_refused(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        verify_store(tmp_path / "nowhere")
