import pytest
import torch

from core.artifacts.code import CodeDigest
from core.artifacts.record import FileEntry, NumericClass, Provenance, Record
from core.artifacts.request import PublishRequest
from core.recipe.runtime import Runtime
from tasks.labels import (
    batched_class,
    default_numeric_class,
    hit_labels,
    unbatched_class,
)


@pytest.fixture
def one_thread():
    """Give torch one thread, and afterwards what it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def code(**functions):
    return CodeDigest(digest=str(sorted(functions.items())), functions=functions)


def labels(there, here):
    """Labels between a record and a request that say ``there`` and ``here``."""
    record = Record(
        kind="number",
        name="n",
        task="t",
        version="1",
        key="0" * 16,
        payload={},
        files={"x": FileEntry(sha256="0" * 64, size=0)},
        digest="0" * 64,
        provenance=Provenance(python="3", started="now", wall_time_s=0),
        **there,
    )
    return hit_labels(
        PublishRequest(kind="number", name="n", task="t", version="1", spec={}, **here), record
    )


def test_the_same_code_and_class_have_no_label():
    same = {"code": code(f="1"), "numeric_class": NumericClass(device="cpu", chunk=256)}
    assert labels(same, same) == []


def test_what_was_not_recorded_has_no_label():
    assert labels({}, {"code": code(f="1"), "numeric_class": NumericClass(device="cpu")}) == []


def test_changed_functions_are_named():
    before = {"code": code(**{"core.a.f": "1", "core.a.g": "1"})}
    after = {"code": code(**{"core.a.f": "2", "core.a.g": "1", "core.b.h": "1"})}
    assert labels(before, after) == ["code has changed since it was built: core.a.f, core.b.h"]


def test_many_changed_functions_are_counted():
    before = {"code": code(**{f"f{i}": "1" for i in range(10)})}
    after = {"code": code(**{f"f{i}": "2" for i in range(10)})}
    assert labels(before, after)[0].endswith("f0, f1, f2, f3, f4, f5 and 4 more")


@pytest.mark.parametrize(
    ("there", "here", "expected"),
    [
        ({"device": "cpu"}, {"device": "cuda:H200"}, "device cpu, here cuda:H200"),
        (
            {"device": "cpu", "chunk": 256, "threads": 1},
            {"device": "cpu", "chunk": 128, "threads": 2},
            "chunk 256, here 128; threads 1, here 2",
        ),
    ],
)
def test_another_numeric_class_is_said(there, here, expected):
    found = labels(
        {"numeric_class": NumericClass(**there)}, {"numeric_class": NumericClass(**here)}
    )
    assert found == [f"built in another numeric class: {expected}"]


def test_only_what_both_sides_know_is_compared():
    there = NumericClass(device="cpu", physical_rows=32, chunk=256)
    here = NumericClass(device="cpu", chunk=256, threads=2)
    assert labels({"numeric_class": there}, {"numeric_class": here}) == []


def test_the_default_class_is_the_runtime_s():
    runtime = Runtime(device="cpu", chunk_size=64, threads=2, max_update_padded_tokens=900)
    assert default_numeric_class(None, runtime) == NumericClass(
        device="cpu",
        chunk=64,
        threads=2,
        trajectory_batch_size=8,
        max_update_padded_tokens=900,
        length_bucketing=True,
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"trajectory_batch_size": 1}, "trajectory_batch_size 8, here 1"),
        ({"trajectory_batch_size": "auto"}, "trajectory_batch_size 8, here auto"),
        ({"max_update_padded_tokens": 512}, "max_update_padded_tokens 0, here 512"),
        ({"length_bucketing": False}, "length_bucketing True, here False"),
        ({"threads": 3}, "threads 1, here 3"),
    ],
)
def test_every_physical_size_that_may_change_bits_is_said(change, expected, one_thread):
    built = batched_class(Runtime(device="cpu"))
    here = default_numeric_class(None, Runtime(device="cpu", **change))
    found = labels({"numeric_class": built}, {"numeric_class": here})
    assert found == [f"built in another numeric class: {expected}"]


def test_threads_are_those_that_torch_had(one_thread):
    """The runtime named none, and alone it does not know which backend the default is for."""
    runtime = Runtime(device="cpu")
    assert default_numeric_class(None, runtime).threads is None
    assert batched_class(runtime).threads == 1


def test_physical_sizes_do_not_reach_what_has_no_forward_pass():
    built = unbatched_class(Runtime(device="cpu"))
    here = default_numeric_class(None, Runtime(device="cpu", trajectory_batch_size=1, threads=5))
    assert labels({"numeric_class": built}, {"numeric_class": here}) == []
