"""When a model at rest leaves the device, and why."""

import importlib.metadata

import pytest

from core.errors import BackendError
from core.models import swap
from core.models.swap import MemoryRules, crowded, decide, obstacle

GIB = 2**30
CUDA = {"device": "cuda", "free_bytes": 5 * GIB, "fixed": None}


def test_a_cpu_has_no_memory_of_its_own():
    found = decide(MemoryRules("auto"), device="cpu", free_bytes=None, fixed=None)
    assert (found.strategy, found.reason) == ("resident", "auto: a CPU has no memory of its own")


def test_auto_stays_where_the_headroom_is_free():
    found = decide(MemoryRules("auto", 2 * GIB), **CUDA)
    assert (found.strategy, found.swaps) == ("resident", False)
    assert "5.00 GiB was free" in found.reason


def test_auto_swaps_below_the_headroom():
    found = decide(MemoryRules("auto", 6 * GIB), **CUDA)
    assert found.swaps
    assert "5.00 GiB are free, less than the 6.00 GiB" in found.reason


def test_auto_stays_where_weights_cannot_move():
    found = decide(MemoryRules("auto", 6 * GIB), **{**CUDA, "fixed": "they are bolted down"})
    assert (found.strategy, found.reason) == ("resident", "auto: they are bolted down")


@pytest.mark.parametrize("strategy", ["resident", "swap"])
def test_what_is_asked_for_is_done(strategy):
    for device in ("cpu", "cuda"):
        found = decide(MemoryRules(strategy), device=device, free_bytes=0, fixed=None)
        assert (found.strategy, found.reason) == (strategy, "asked for")


def test_a_role_that_does_not_fit_is_a_reason():
    assert crowded("teacher").swaps
    assert "the teacher does not fit" in crowded("teacher").reason


@pytest.mark.parametrize(
    ("installed", "moves"), [("0.42.0", False), ("0.43.1", False), ("0.43.2", True), ("0.50.2", 1)]
)
def test_four_bits_move_from_a_version_on(monkeypatch, installed, moves):
    """C60: that 4-bit weights cannot move was true of old versions only."""
    monkeypatch.setattr(swap, "version", lambda name: installed)
    assert (obstacle("nf4") is None) == bool(moves)
    if not moves:
        assert installed in str(obstacle("nf4"))


def test_eight_bits_stay_and_plain_weights_move():
    assert obstacle("none") is None
    assert "8-bit" in str(obstacle("int8"))


def test_without_the_library_four_bits_stay(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(swap, "version", absent)
    assert obstacle("nf4") == "bitsandbytes is not installed"


def test_a_swap_that_is_impossible_is_refused_with_its_key():
    with pytest.raises(BackendError, match=r"runtime\.memory_strategy=swap is impossible: bolted"):
        decide(MemoryRules("swap"), device="cuda", free_bytes=0, fixed="bolted")
