import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.artifacts.codec import (
    iterate_jsonl,
    read_json,
    read_jsonl,
    read_parquet,
    write_json,
    write_jsonl,
    write_parquet,
)
from core.errors import StoreError

finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | finite,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_the_bytes_of_a_document(tmp_path):
    write_json(tmp_path / "a.json", {"b": [1, 2.5], "a": {"é": None}})
    assert (tmp_path / "a.json").read_bytes() == (
        b'{\n "a": {\n  "\\u00e9": null\n },\n "b": [\n  1,\n  2.5\n ]\n}\n'
    )


def test_the_bytes_of_rows(tmp_path):
    assert write_jsonl(tmp_path / "a.jsonl", ({"b": i, "a": (i,)} for i in range(2))) == 2
    assert (tmp_path / "a.jsonl").read_bytes() == b'{"a":[0],"b":0}\n{"a":[1],"b":1}\n'


def test_no_rows_are_an_empty_file(tmp_path):
    assert write_jsonl(tmp_path / "a.jsonl", []) == 0
    assert (tmp_path / "a.jsonl").read_bytes() == b""
    assert read_jsonl(tmp_path / "a.jsonl") == []


@given(st.lists(plain, max_size=4))
def test_values_survive_and_equal_values_give_equal_bytes(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    write_jsonl(path, rows)
    data = path.read_bytes()
    assert read_jsonl(path) == rows
    write_jsonl(path, read_jsonl(path))
    assert path.read_bytes() == data
    write_json(path, rows)
    assert read_json(path) == rows


def test_numbers_keep_their_type_and_every_bit(tmp_path):
    values = [0.1 + 0.2, 1e-308, 5e-324, math.pi, -0.0, 2**70, 1, 1.0, np.float64(0.1)]
    write_json(tmp_path / "a.json", values)
    found = read_json(tmp_path / "a.json")
    assert [repr(v) for v in found] == [repr(float(v)) if v == 0.1 else repr(v) for v in values]


def test_half_a_surrogate_pair_survives(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["\ud800", "\u2028 in a row"])
    assert read_jsonl(tmp_path / "a.jsonl") == ["\ud800", "\u2028 in a row"]


def test_rows_are_decoded_as_they_are_asked_for(tmp_path):
    (tmp_path / "a.jsonl").write_text("1\nbroken\n")
    rows = iterate_jsonl(tmp_path / "a.jsonl")
    assert next(rows) == 1
    with pytest.raises(StoreError, match="row 2"):
        next(rows)


def test_a_table_survives_and_its_bytes_repeat(tmp_path):
    frame = pd.DataFrame({"name": ["a", "b"], "value": [0.1, math.inf], "count": [1, 2]})
    write_parquet(tmp_path / "a.parquet", frame)
    write_parquet(tmp_path / "b.parquet", frame.copy())
    pd.testing.assert_frame_equal(read_parquet(tmp_path / "a.parquet"), frame)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    write_parquet(tmp_path / "c.parquet", frame.set_index(pd.Index([7, 8])))
    assert list(read_parquet(tmp_path / "c.parquet").index) == [0, 1]


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (math.nan, "value is nan"),
        ({"a": [0, math.inf]}, r"a\[1\] is inf"),
        ({"a": {"b": np.zeros(1)}}, r"a\.b is a ndarray"),
        ({"a": np.float32(1)}, "a is a float32"),
        ({1: 2}, "value has the key 1"),
        ({"a": [{None: 2}]}, r"a\[0\] has the key None"),
        ({1, 2}, "value is a set"),
        (b"x", "value is a bytes"),
    ],
)
def test_what_json_has_no_text_for_is_refused_and_nothing_is_written(value, what, tmp_path):
    with pytest.raises(StoreError, match=rf"a\.json: {what}"):
        write_json(tmp_path / "a.json", value)
    with pytest.raises(StoreError, match=rf"a\.jsonl: row 2: {what}"):
        write_jsonl(tmp_path / "a.jsonl", [0, value])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("NaN", "NaN is not a finite number"),
        ("[-Infinity]", "-Infinity is not a finite number"),
        ('{"a":1,"a":2}', "the key 'a' appears twice"),
        ('{"a":{"b":1,"c":0,"b":2}}', "the key 'b' appears twice"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ("1 2", "Extra data"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_row(line, what, tmp_path):
    (tmp_path / "a").write_text(f"0\n{line}\n0\n")
    with pytest.raises(StoreError, match=f"row 2: not strict JSON: {what}"):
        read_jsonl(tmp_path / "a")
    (tmp_path / "a").write_text(line)
    with pytest.raises(StoreError, match=f"a: not strict JSON: {what}"):
        read_json(tmp_path / "a")


def test_a_row_that_was_cut_off_is_refused(tmp_path):
    (tmp_path / "a").write_text('{"a":1}\n{"a":2}')
    with pytest.raises(StoreError, match="row 2 is cut off"):
        read_jsonl(tmp_path / "a")


def test_bytes_that_are_no_text_and_missing_files_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b'{"a":"\xff"}\n')
    for read in (read_json, read_jsonl):
        with pytest.raises(StoreError, match="byte 6 is not UTF-8"):
            read(tmp_path / "a")
    for read in (read_json, read_jsonl, read_parquet):
        with pytest.raises(StoreError, match="No such file"):
            read(tmp_path / "missing")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(20) + b"PAR1", b"no table at all"])
def test_what_is_no_table_is_refused(data, tmp_path):
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(StoreError, match="not a Parquet file"):
        read_parquet(tmp_path / "a.parquet")


def test_a_table_that_cannot_be_stored_is_refused(tmp_path):
    for frame in (pd.DataFrame({"a": [1, "x"]}), pd.DataFrame({"a": [object()]})):
        with pytest.raises(StoreError, match="the table cannot be stored"):
            write_parquet(tmp_path / "a.parquet", frame)
    assert not any(tmp_path.iterdir())


def test_durable_files_wait_for_the_disk(tmp_path, watch):
    calls = []
    watch(lambda name, path: calls.append(name))
    write_json(tmp_path / "a.json", json.loads("{}"))
    assert "sync_file" not in calls
    write_json(tmp_path / "a.json", {}, durable=True)
    write_jsonl(tmp_path / "a.jsonl", [], durable=True)
    write_parquet(tmp_path / "a.parquet", pd.DataFrame({"a": [1]}), durable=True)
    assert calls.count("sync_file") == 3
