import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.errors import MemoryExhaustedError
from core.training.memory import ChunkSize


class Device:
    """Fails above a chunk size and keeps a record."""

    def __init__(self, fits: int) -> None:
        self.fits = fits
        self.calls: list[int] = []
        self.resets = 0

    def attempt(self, chunk: int) -> str:
        self.calls.append(chunk)
        if chunk > self.fits:
            raise torch.OutOfMemoryError("full")
        return "done"

    def reset(self) -> None:
        self.resets += 1


def test_the_chunk_is_halved_until_it_fits():
    device, chunk = Device(fits=64), ChunkSize(256, retries=3, smallest=8)
    assert chunk.run(device.attempt, device.reset) == "done"
    assert device.calls == [256, 128, 64]
    assert (chunk.size, chunk.history, device.resets) == (64, [256, 128], 2)


def test_a_size_that_fitted_stays():
    device, chunk = Device(fits=64), ChunkSize(256, retries=3, smallest=8)
    for _ in range(2):
        chunk.run(device.attempt, device.reset)
    assert device.calls == [256, 128, 64, 64]


@given(st.integers(1, 512), st.integers(0, 10), st.integers(1, 64), st.integers(0, 512))
def test_the_sizes_shrink_and_end(size, retries, smallest, fits):
    device, chunk = Device(fits), ChunkSize(size, retries, smallest)
    try:
        chunk.run(device.attempt, device.reset)
    except MemoryExhaustedError:
        assert device.calls[-1] > fits
    assert len(device.calls) <= retries + 1
    assert sorted(set(device.calls), reverse=True) == device.calls
    assert min(device.calls) >= min(size, smallest)


def test_the_smallest_size_is_tried_and_then_refused():
    device, chunk = Device(fits=0), ChunkSize(20, retries=10, smallest=8)
    with pytest.raises(MemoryExhaustedError, match="chunk_size=8"):
        chunk.run(device.attempt, device.reset)
    assert device.calls == [20, 10, 8]


def test_no_more_retries_than_allowed():
    device, chunk = Device(fits=1), ChunkSize(256, retries=1, smallest=1)
    with pytest.raises(MemoryExhaustedError):
        chunk.run(device.attempt, device.reset)
    assert device.calls == [256, 128]


def test_other_failures_pass_through_at_once():
    def attempt(chunk: int) -> None:
        raise RuntimeError(f"not about memory: {chunk}")

    with pytest.raises(RuntimeError, match="not about memory: 256"):
        ChunkSize(256, retries=3, smallest=8).run(attempt, lambda: None)
