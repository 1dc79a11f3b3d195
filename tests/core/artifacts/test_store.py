import json
import time
from pathlib import Path

import pytest

from core.artifacts.record import RECORD_NAME, ArtifactRef
from core.artifacts.store import Store
from core.errors import StoreError, StoreSchemaError

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


# --- publishing and finding -------------------------------------------------------------------


def test_a_published_artifact_is_found_by_a_new_store(store, ref):
    assert Store(store.root).find(ref.key) == ref
    assert Store(store.root).find(ref.key, "rollouts") == ref
    assert Store(store.root).find(ref.key, "students") is None
    assert store.path(ref) == store.root / "rollouts" / f"toy-{ref.key}"
    assert store.verify(ref, deep=True) == []


def test_a_hit_builds_nothing(store, ref, make_request, forbidden):
    assert store.publish(make_request(), forbidden) == ref
    assert store.publish(make_request(name="renamed"), forbidden) == ref


def test_a_store_that_does_not_exist_yet_is_empty_and_stays_so(tmp_path):
    store = Store(tmp_path / "deep" / "store")
    assert store.find("0" * 16) is None
    assert store.siblings("rollouts") == []
    assert store.sweep_staging() == 0
    assert not (tmp_path / "deep").exists()


def test_looking_up_takes_less_than_a_millisecond(store, make_request, build, age):
    refs = [store.publish(make_request(spec={"x": i}), build) for i in range(30)]
    age(store.root)
    assert [store.find(r.key, r.kind) for r in refs] == refs
    begun = time.process_time()
    for r in refs * 10:
        store.find(r.key, r.kind)
        store.find("0" * 16, "rollouts")
    assert (time.process_time() - begun) / 600 < 0.001


def test_siblings_are_the_records_of_a_kind(store, make_request, build, ref):
    store.publish(make_request(kind="student"), build)
    other = store.publish(make_request(task="collect", spec={"x": 1}), build)
    assert {r.ref.key for r in store.siblings("rollouts")} == {ref.key, other.key}
    assert [r.ref for r in store.siblings("rollouts", "collect")] == [other]


# --- damage -----------------------------------------------------------------------------------


def _cut_record(path):
    record = path / RECORD_NAME
    record.write_bytes(record.read_bytes()[:-20])


DAMAGE = {
    "altered": lambda p: (p / "rows.jsonl").write_text('{"a":2}\n'),
    "cut": lambda p: (p / "inner" / "weights.bin").write_bytes(bytes(range(63))),
    "deleted": lambda p: (p / "rows.jsonl").unlink(),
    "emptied": lambda p: (p / "rows.jsonl").write_bytes(b""),
    "linked": lambda p: ((p / "rows.jsonl").unlink(), (p / "rows.jsonl").symlink_to("/dev/null")),
    "no record": lambda p: (p / RECORD_NAME).unlink(),
    "cut record": _cut_record,
    "empty record": lambda p: (p / RECORD_NAME).write_bytes(b""),
}


@pytest.mark.parametrize("looked_up_before", [True, False])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_artifact_is_a_miss_and_is_rebuilt(
    damage, looked_up_before, store, ref, make_request, build, age
):
    age(store.root)
    assert not looked_up_before or store.find(ref.key) == ref
    DAMAGE[damage](store.path(ref))
    assert store.find(ref.key) is None
    assert len(store.verify(ref)) == 1
    assert store.publish(make_request(), build) == ref
    assert store.find(ref.key) == ref
    assert store.verify(ref, deep=True) == []
    assert len(quarantined(store)) == 1


def test_a_deleted_artifact_is_a_miss_and_is_rebuilt(store, ref, make_request, build):
    (store.path(ref)).rename(store.root.parent / "gone")
    assert store.find(ref.key) is None
    assert store.verify(ref) == [f"{ref.address}/record.json: missing"]
    assert store.publish(make_request(), build) == ref


def test_a_deep_check_finds_what_the_record_does_not_know(store, ref):
    (store.path(ref) / "stranger").write_bytes(b"x")
    assert store.find(ref.key) == ref
    assert store.verify(ref, deep=True) == [f"{ref.address}/stranger: not in the record"]


def test_a_newer_record_is_refused_not_rebuilt(store, ref, make_request, forbidden):
    path = store.path(ref) / RECORD_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 3}))
    for attempt in (
        lambda: store.find(ref.key),
        lambda: store.verify(ref),
        lambda: store.siblings("rollouts"),
        lambda: store.publish(make_request(), forbidden),
    ):
        with pytest.raises(StoreSchemaError, match="schema version 3 is newer"):
            attempt()


# --- pruning ----------------------------------------------------------------------------------


def test_a_pruned_artifact_keeps_its_record_and_is_a_miss(store, ref, make_request, build):
    digest = store.record(ref).digest
    assert store.is_pruned(ref) is False
    assert store.prune(ref) == 8 + 64
    assert store.is_pruned(ref) is True
    assert [p.name for p in store.path(ref).iterdir()] == [RECORD_NAME]
    assert store.find(ref.key) is None
    assert store.verify(ref) == [f"{ref.address}: pruned to save space"]
    assert store.record(ref).digest == digest
    assert len(store.siblings("rollouts")) == 1
    assert store.prune(ref) == 0
    assert store.publish(make_request(), build) == ref
    assert store.is_pruned(ref) is False
    assert store.find(ref.key) == ref


def test_what_does_not_exist_has_no_record_and_cannot_be_pruned(store, ref):
    other = ArtifactRef(kind="rollouts", name="toy", key="0" * 16, digest="0" * 64)
    assert store.is_pruned(other) is False
    with pytest.raises(StoreError, match="no such artifact"):
        store.record(other)
    with pytest.raises(StoreError, match="no such artifact"):
        store.prune(other)
