import hashlib
import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from core.artifacts.code import ROOT
from core.artifacts.tensors import read_tensors, write_tensors
from core.errors import StoreError

TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def test_the_bytes_of_a_file(tmp_path):
    arrays = {"b": np.array([1, 2], np.int16), "a": np.array([[0.5]], np.float32)}
    write_tensors(tmp_path / "t", arrays, {"z": "1", "y": "2"})
    header = (
        b'{"__metadata__":{"y":"2","z":"1"},'
        b'"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1,1]},'
        b'"b":{"data_offsets":[4,8],"dtype":"I16","shape":[2]}}'
    )
    header += b" " * (-len(header) % 8)
    data = struct.pack("<f", 0.5) + struct.pack("<hh", 1, 2)
    assert (tmp_path / "t").read_bytes() == struct.pack("<Q", len(header)) + header + data


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6).filter(lambda name: name != "__metadata__"),
        st.sampled_from(TYPES).flatmap(lambda t: hnp.arrays(t, hnp.array_shapes(min_dims=0))),
        max_size=4,
    )
)
def test_arrays_survive_bit_for_bit(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("tensors") / "t"
    write_tensors(path, arrays, {"k": "v"})
    found = read_tensors(path)
    assert found.metadata == {"k": "v"}
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()
        assert found.arrays[name].flags.writeable
        assert found.arrays[name].flags.aligned


def test_the_official_library_reads_what_we_write_and_the_reverse(tmp_path):
    arrays = {t: np.arange(6).reshape(2, 3).astype(t) for t in TYPES}
    write_tensors(tmp_path / "ours", arrays)
    save_file(arrays, tmp_path / "theirs", metadata={"k": "v"})
    theirs, ours = load_file(tmp_path / "ours"), read_tensors(tmp_path / "theirs")
    for name in TYPES:
        np.testing.assert_array_equal(theirs[name], arrays[name])
        np.testing.assert_array_equal(ours.arrays[name], arrays[name])
        assert theirs[name].dtype == ours.arrays[name].dtype == arrays[name].dtype
    assert ours.metadata == {"k": "v"}


def test_layout_in_memory_does_not_change_the_bytes(tmp_path):
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, array in {
        "a": plain,
        "b": np.asfortranarray(plain),
        "c": plain.astype(">f4"),
    }.items():
        write_tensors(tmp_path / name, {"x": array})
    strided = np.zeros((3, 8), np.float32)
    strided[:, ::2] = plain
    write_tensors(tmp_path / "d", {"x": strided[:, ::2]})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_equal_content_gives_equal_bytes_in_every_process(tmp_path):
    code = (
        "import sys, numpy as np; from pathlib import Path;"
        "from core.artifacts.tensors import write_tensors;"
        "arrays = {n: np.full(3, i, 'f4') for i, n in enumerate(set('abcdefgh'))};"
        "arrays = {n: np.full(3, ord(n), 'f4') for n in arrays};"
        "write_tensors(Path(sys.argv[1]), arrays, {n: n for n in set('qrstuvw')})"
    )
    for seed in "12":
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        subprocess.run(command, cwd=ROOT, check=True, env={"PYTHONHASHSEED": seed})
    one, two = ((tmp_path / seed).read_bytes() for seed in "12")
    assert hashlib.sha256(one).hexdigest() == hashlib.sha256(two).hexdigest()


def test_bfloat16_travels_as_bits(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_torch

    values = torch.tensor([1.0, -2.5, 3e38, 1e-40], dtype=torch.bfloat16)
    bits = values.view(torch.uint16).numpy()
    write_tensors(tmp_path / "t", {"x": bits, "ids": bits}, bfloat16=["x"])
    found = read_tensors(tmp_path / "t")
    assert found.bfloat16 == {"x"}
    assert found.arrays["x"].dtype == np.uint16
    back = torch.from_numpy(found.arrays["x"]).view(torch.bfloat16)
    assert torch.equal(back, values)
    assert torch.equal(load_torch(tmp_path / "t")["x"], values)


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("x", np.zeros(1, complex)),
        ("x", np.array([object()])),
        ("x", np.array(["text"])),
        ("x", np.zeros(1, np.longdouble)),
        ("marked", np.zeros(1, np.float32)),
        ("__metadata__", np.zeros(1, np.float32)),
    ],
)
def test_a_type_without_a_code_is_refused(name, array, tmp_path):
    with pytest.raises(StoreError, match=f"tensor '{name}' of type {array.dtype} cannot be stored"):
        write_tensors(tmp_path / "t", {name: array}, bfloat16=["marked"])
    assert not any(tmp_path.iterdir())


def test_every_cut_of_a_file_is_refused(tmp_path):
    write_tensors(tmp_path / "t", {"a": np.arange(3), "b": np.zeros(2, np.float32)})
    data = (tmp_path / "t").read_bytes()
    for end in range(len(data)):
        (tmp_path / "t").write_bytes(data[:end])
        with pytest.raises(StoreError, match="not a safetensors file"):
            read_tensors(tmp_path / "t")


def entry(begin, end, shape=None, dtype="U8"):
    return {
        "dtype": dtype,
        "shape": [end - begin] if shape is None else shape,
        "data_offsets": [begin, end],
    }


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ([], "not a JSON object"),
        ("{", "not JSON"),
        ({"a": entry(0, 4, [5])}, "'a' does not fill its place"),
        ({"a": entry(0, 4), "b": entry(2, 8)}, "'b' starts at 2 instead of 4"),
        ({"a": entry(0, 3), "b": entry(4, 8)}, "'b' starts at 4 instead of 3"),
        ({"a": entry(0, 4)}, "holds 8 bytes of data instead of 4"),
        ({"a": entry(0, 16)}, "holds 8 bytes of data instead of 16"),
        ({"a": entry(-8, 0)}, "not valid"),
        ({"a": entry(0, 8, dtype="PICKLE")}, "not valid: 'PICKLE'"),
        ({"a": {"dtype": "U8"}}, "not valid: 'data_offsets'"),
        ({"a": None}, "not valid"),
        ({"a": entry(0, 8, ["8"])}, "not valid|does not fill"),
        ({"a": entry(0, 8, [-2, -4])}, "not valid"),
        ({"a": entry(0, 8, [8.0])}, "not valid"),
        ({"__metadata__": {"k": 1}, "a": entry(0, 8)}, "metadata"),
        ({"__metadata__": 3, "a": entry(0, 8)}, "metadata"),
    ],
)
def test_a_header_that_does_not_describe_its_data_is_refused(header, what, tmp_path):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    (tmp_path / "t").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(StoreError, match=f"t: not a safetensors file: .*({what})"):
        read_tensors(tmp_path / "t")


def test_a_header_longer_than_the_file_is_refused_without_reading_it(tmp_path):
    (tmp_path / "t").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(StoreError, match="the header is cut off"):
        read_tensors(tmp_path / "t")
