import errno
import itertools

import pytest

from core.artifacts.staging import Staging
from core.artifacts.store import Store


@pytest.fixture
def staging(tmp_path):
    return Staging(tmp_path)


def test_a_lent_directory_is_private_empty_and_removed(staging, tmp_path):
    with staging.fresh("rollouts-00") as path:
        assert list(path.iterdir()) == []
        assert path.stat().st_mode & 0o777 == 0o700
        assert path.name.startswith("rollouts-00-")
        (path / "inner").mkdir()
        (path / "inner" / "file").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_moved_away_stays_moved(staging, tmp_path):
    with staging.fresh("rollouts-00") as path:
        path.rename(tmp_path / "published")
    assert [p.name for p in tmp_path.iterdir()] == ["published"]


def test_leftovers_of_the_same_slot_are_removed_and_others_kept(staging, tmp_path):
    for name in ("rollouts-00-11-aa", "rollouts-01-11-aa", "rollouts-000-11-aa"):
        (tmp_path / name).mkdir()
    with staging.fresh("rollouts-00"):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rollouts-000-11-aa", "rollouts-01-11-aa"]


def test_slots_are_listed_once_each(staging, tmp_path):
    for name in ("a_b-00-11-aa", "a_b-00-12-bb", "c-01-11-aa"):
        (tmp_path / name).mkdir()
    assert staging.slots() == ["a_b-00", "c-01"]
    assert Staging(tmp_path / "missing").slots() == []


def test_a_failure_inside_is_the_one_reported(staging, fail, caplog):
    with (
        pytest.raises(RuntimeError, match="inside"),
        fail("remove_tree", errno.EROFS),
        staging.fresh("rollouts-00"),
    ):
        raise RuntimeError("inside")
    assert "left behind in staging" in caplog.text


# --- a crash at every call --------------------------------------------------------------------


class PowerCut(BaseException):
    """Nothing runs after it: every further touch of the disk raises it again."""


@pytest.fixture
def cut_at(watch):
    """Let the power fail at the n-th touch of the disk; tells whether it got that far."""

    def attempt(number, action):
        seen = itertools.count()

        def observer(name, path):
            if next(seen) < number:
                return
            if name == "write_file" and not path.exists():
                path.write_bytes(b"torn")
            raise PowerCut

        watch(observer)
        try:
            action()
        except PowerCut:
            return True
        finally:
            watch(lambda name, path: None)
        return False

    return attempt


@pytest.mark.parametrize("before", ["nothing", "damaged", "pruned"])
def test_a_crash_at_any_call_leaves_the_whole_artifact_or_none(
    before, tmp_path, make_request, build, cut_at
):
    request, outcomes = make_request(), set()
    for number in itertools.count():
        store = Store(tmp_path / f"{number}")
        if before != "nothing":
            ref = store.publish(request, build)
            (store.path(ref) / "rows.jsonl").unlink() if before == "damaged" else store.prune(ref)
        cut = cut_at(number, lambda: store.publish(request, build))  # noqa: B023
        survivor = Store(store.root)
        found = survivor.find(request.identity.key)
        outcomes.add(found is not None)
        assert found is None or survivor.verify(found, deep=True) == []
        assert len(survivor.siblings("rollouts")) <= 1
        assert survivor.verify(survivor.publish(request, build), deep=True) == []
        survivor.sweep_staging()
        assert not any((store.root / ".staging").iterdir())
        if not cut:
            break
    assert outcomes == {True, False}
    assert number > 30


def test_a_crash_at_any_call_of_pruning_can_be_continued(tmp_path, make_request, build, cut_at):
    for number in itertools.count():
        store = Store(tmp_path / f"{number}")
        ref = store.publish(make_request(), build)
        cut = cut_at(number, lambda: store.prune(ref))  # noqa: B023
        survivor = Store(store.root)
        found = survivor.find(ref.key)
        assert found is None or survivor.verify(found, deep=True) == []
        survivor.prune(ref)
        assert [p.name for p in store.path(ref).iterdir()] == ["record.json"]
        if not cut:
            break
    assert number > 8


def test_all_is_on_the_disk_before_it_appears(store, make_request, build, watch):
    calls = []
    watch(lambda name, path: calls.append((name, path)))
    target = store.path(store.publish(make_request(), build))
    appeared = calls.index(("rename", target))
    synced = [path.name for name, path in calls[:appeared] if name.startswith("sync")]
    assert synced[:5] == [
        store.root.parent.name,
        "weights.bin",
        "rows.jsonl",
        "record.json",
        "inner",
    ]
    assert synced[5].startswith("rollouts-")  # the staging directory itself
    assert synced[6:] == [store.root.name]  # which the directory of the kind was added to
    assert calls[appeared + 1] == ("sync_directory", target.parent)
