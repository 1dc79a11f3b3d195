import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.errors import StoreError, StoreSchemaError
from core.models.tensor_files import (
    load_described,
    load_description,
    save_described,
    tensors_digest,
)

DOCUMENT = {"kind": "thing", "schema_version": 3, "note": "kept"}
TENSORS = {"a": torch.tensor([1.0, float("nan")]), "b": torch.arange(4).view(2, 2)}


def save(directory: Path, **changes: object) -> dict:
    save_described(directory, "d.json", {**DOCUMENT, **changes}, {"t.safetensors": TENSORS})
    return load_description(directory / "d.json", "thing", 3, {"note"})


def test_the_digest_is_over_names_types_shapes_and_bytes():
    base = {"a": torch.tensor([1.0, 2.0])}
    digests = {
        tensors_digest(base),
        tensors_digest({"b": base["a"]}),
        tensors_digest({"a": base["a"].view(2, 1)}),
        tensors_digest({"a": base["a"].view(torch.int32)}),
        tensors_digest({"a": torch.tensor([1.0, 3.0])}),
    }
    assert len(digests) == 5
    assert tensors_digest({"a": torch.tensor(1.0)}) != tensors_digest({"a": torch.tensor([1.0])})


WRITE = """
import sys, torch
from pathlib import Path
from core.models.tensor_files import save_described
kinds = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]
names = set(f"layer.{i}.weight" for i in range(40))
tensors = {n: torch.arange(len(n) + i % 3).to(kinds[int(n.split(".")[1]) % 5])
           for i, n in enumerate(sorted(names))}
tensors = {n: tensors[n] for n in names}
save_described(Path(sys.argv[1]), "d.json", {}, {"t.safetensors": tensors})
"""
"""Tensors of all kinds in the order of a set of strings, which each hash seed changes."""


def test_equal_tensors_give_equal_bytes_in_every_process(tmp_path):
    written = []
    for seed in "123":
        (tmp_path / seed).mkdir()
        command = [sys.executable, "-c", WRITE, str(tmp_path / seed)]
        root = Path(__file__).parents[3]
        subprocess.run(command, cwd=root, check=True, env={"PYTHONHASHSEED": seed})
        written.append((tmp_path / seed / "t.safetensors").read_bytes())
    assert b"BF16" in written[0]
    assert b"__metadata__" not in written[0]
    assert written[0] == written[1] == written[2]


@given(st.lists(st.floats(width=32), max_size=6))
def test_every_bit_returns(tmp_path_factory, values):
    directory = tmp_path_factory.mktemp("files")
    before = torch.tensor(values, dtype=torch.float32)
    save_described(directory, "d.json", DOCUMENT, {"t.safetensors": {"x": before}})
    document = load_description(directory / "d.json", "thing", 3, {"note"})
    after = load_described(directory / "t.safetensors", document)["x"]
    assert torch.equal(after.view(torch.int32), before.view(torch.int32))


def test_a_bfloat16_tensor_has_a_digest():
    assert len(tensors_digest({"a": torch.ones(3, dtype=torch.bfloat16)})) == 64


def test_a_view_of_a_larger_tensor_is_saved_as_itself(tmp_path: Path):
    view = torch.arange(12.0).view(3, 4)[:, 1]
    save_described(tmp_path, "d.json", DOCUMENT, {"t.safetensors": {"x": view}})
    document = load_description(tmp_path / "d.json", "thing", 3, {"note"})
    assert load_described(tmp_path / "t.safetensors", document)["x"].tolist() == [1.0, 5.0, 9.0]


def test_a_changed_byte_is_refused(tmp_path: Path):
    document = save(tmp_path)
    path = tmp_path / "t.safetensors"
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(bytes(blob))
    with pytest.raises(StoreError, match="cut off, altered"):
        load_described(path, document)


@pytest.mark.parametrize(
    "blob",
    [
        b"text",
        (1 << 62).to_bytes(8, "little") + b"{}",  # a header that would fill the memory
        (400_000).to_bytes(8, "little") + b"[" * 400_000,  # one that would end a parser's stack
        (60).to_bytes(8, "little")
        + b'{"x":{"dtype":"F32","shape":[99],"data_offsets":[0,396]}}   ',  # beyond the end
    ],
    ids=["text", "huge header", "nested header", "offsets outside"],
)
def test_bytes_that_are_no_tensors_are_refused(tmp_path: Path, blob):
    """Even with a fitting digest, as a hostile store would have it."""
    (tmp_path / "t.safetensors").write_bytes(blob)
    document = {"sha256": {"t.safetensors": hashlib.sha256(blob).hexdigest()}}
    with pytest.raises(StoreError, match="not a safetensors file"):
        load_described(tmp_path / "t.safetensors", document)


@pytest.mark.parametrize(
    ("changes", "refusal", "message"),
    [
        ({"kind": "other"}, StoreError, "describes a 'other', not a thing"),
        ({"schema_version": 4}, StoreSchemaError, "schema version 4"),
        ({"extra": 1}, StoreError, "a field is missing or unknown"),
    ],
)
def test_a_foreign_description_is_refused(tmp_path: Path, changes, refusal, message):
    with pytest.raises(refusal, match=message):
        save(tmp_path, **changes)


@pytest.mark.parametrize("text", ['{"kind": "thi', "[" * 200_000, '{"kind":' * 200_000, "\\x80"])
def test_a_description_that_is_cut_off_or_hostile_is_refused(tmp_path: Path, text):
    save(tmp_path)
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(StoreError, match="does not describe a thing"):
        load_description(tmp_path / "d.json", "thing", 3, {"note"})
