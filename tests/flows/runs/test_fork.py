import pytest

from core.artifacts.record import ArtifactRef
from core.errors import InputError
from flows.runs.fork import fork_overrides


def ref(n):
    return ArtifactRef(kind="student", name="s", key=f"{n:016x}", digest=f"{n:064x}")


class Document:
    """What is read of a manifest and of the facts of this machine."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A run directory of two cycles."""
    refs = {"cold_start": ref(1), "student_0000": ref(2), "student_0001": ref(3)}
    entries = {role: Document(ref=one) for role, one in refs.items()}
    monkeypatch.setattr("flows.runs.fork.load_manifest", lambda _: Document(artifacts=entries))
    monkeypatch.setattr("flows.runs.fork.read_local", lambda _: Document(store="/a/store"))
    return tmp_path / "toy@home"


@pytest.mark.parametrize(("cycle", "digest"), [(0, 1), (1, 2), (2, 3)])
def test_a_cycle_names_the_student_that_had_done_so_many(directory, cycle, digest):
    assert fork_overrides(f"{directory}@{cycle}") == [
        f"run.start={digest:064x}",
        "cold_start=null",
        "train.sft_warmup_cycles=0",
        f'run.name="toy@home-from-{cycle}"',
        "runtime.store=/a/store",
    ]


@pytest.mark.parametrize("suffix", ["", "@", "@x", "@-1", "@3"])
def test_another_place_is_refused_with_the_way_to_write_it(directory, suffix):
    with pytest.raises(InputError) as refused:
        fork_overrides(f"{directory}{suffix}")
    assert "--from" in refused.value.message
    assert "@3" in refused.value.hint
