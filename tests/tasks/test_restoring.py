import pytest
from pydantic import BaseModel

from core.errors import StoreError
from core.recipe.runtime import Runtime
from tasks.caching import StepContext, open_store, step


class Spec(BaseModel):
    """What the counting step depends on."""

    number: int
    sizes: tuple[int, ...] = (1, 2)


@pytest.fixture
def runtime(tmp_path):
    return Runtime(store=tmp_path / "store", device="cpu")


@pytest.fixture
def grow():
    """A step that adds to what its parent holds, and the numbers it was called with."""
    calls, drift = [], []

    @step(kind="state", version="1")
    def grow_state(context: StepContext, spec: Spec, state=None):
        calls.append(spec.number)
        before = int((context.path(state) / "big.bin").read_text()) if state is not None else 0
        (context.out / "big.bin").write_text(str(before + spec.number + sum(drift)))
        (context.out / "note.txt").write_text("small")
        return {}

    object.__setattr__(grow_state, "calls", calls)
    object.__setattr__(grow_state, "drift", drift)
    return grow_state


@pytest.fixture
def chain(grow, runtime):
    """Three states, each made from the one before."""
    refs = []
    for number in (1, 2, 3):
        parent = {"state": refs[-1]} if refs else {}
        refs.append(grow.prepare(Spec(number=number), runtime=runtime, name="s", **parent).run())
    grow.calls.clear()
    return refs


def test_a_shed_state_is_a_hit_for_what_needs_its_digest_only(grow, chain, runtime):
    store = open_store(runtime.store)
    store.shed(chain[1], ["big.bin"])
    call = grow.prepare(Spec(number=2), runtime=runtime, name="s", state=chain[0])
    assert call.found == chain[1]
    assert grow.calls == []


def test_what_needs_its_bytes_has_it_made_again_with_all_that_it_came_from(grow, chain, runtime):
    store = open_store(runtime.store)
    for ref in chain[:2]:
        store.shed(ref, ["big.bin"])
    after = grow.prepare(Spec(number=9), runtime=runtime, name="s", state=chain[1]).run()
    assert grow.calls == [1, 2, 9]
    assert (store.path(after) / "big.bin").read_text() == "12"
    assert [store.verify(ref) for ref in chain] == [[], [], []]


def test_other_bytes_than_before_are_refused(grow, chain, runtime):
    store = open_store(runtime.store)
    store.shed(chain[1], ["big.bin"])
    grow.drift.append(100)
    with pytest.raises(StoreError, match="made again, it holds other bytes than before"):
        grow.prepare(Spec(number=9), runtime=runtime, name="s", state=chain[1]).run()


def test_what_no_step_of_this_version_makes_is_refused(grow, chain, runtime, monkeypatch):
    from tasks.restoring import STEPS

    open_store(runtime.store).shed(chain[1], ["big.bin"])
    monkeypatch.delitem(STEPS, "grow_state")
    with pytest.raises(StoreError, match="no step of this version makes it"):
        grow.prepare(Spec(number=9), runtime=runtime, name="s", state=chain[1]).run()
