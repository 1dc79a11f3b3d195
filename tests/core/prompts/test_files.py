import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PromptFileError
from core.prompts.files import MAX_LINE_BYTES, is_parquet, read_rows

ROWS = [{"a": n, "nested": {"b": f"x{n}"}, "c": [{"role": "user"}]} for n in range(10)]


@pytest.mark.parametrize("batch_size", [1, 4, 256])
def test_both_formats_say_the_same(jsonl, parquet, batch_size):
    for path in (jsonl(ROWS), parquet(ROWS)):
        rows = list(read_rows(path, ["a", "nested.b", "c"], batch_size))
        assert [row.values for row in rows] == ROWS
        assert [row.number for row in rows] == list(range(1, 11))
        assert rows[6].place == f"{path} row 7"


def test_the_format_shows_in_the_bytes_and_not_in_the_name(jsonl, parquet):
    assert not is_parquet(jsonl(ROWS, "a.parquet"))
    assert is_parquet(parquet(ROWS, "b.jsonl"))


def test_columns_that_nobody_asked_for_are_not_read(parquet):
    row = next(read_rows(parquet(ROWS), ["nested.b"], 4))
    assert row.values == {"nested": {"b": "x0"}}


def test_a_column_with_a_dot_in_its_name_is_meant_first(parquet):
    rows = [{"nested.b": 1, "nested": {"b": 2}}]
    assert next(read_rows(parquet(rows), ["nested.b"], 4)).values["nested.b"] == 1


def test_empty_lines_are_no_rows_but_count(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n  \n{"a": 2}')
    assert [row.number for row in read_rows(path, [], 4)] == [1, 4]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"{", "row 2 is no JSON object"),
        (b"[1]", "row 2 is a JSON list, no object"),
        (b'"x"', "row 2 is a JSON str, no object"),
        (b'{"a": NaN}', "NaN is not a finite number"),
        (b'{"a": 1, "a": 2}', "the key 'a' appears twice"),
        (b'{"a": "\xff"}', "row 2 is no JSON object"),
        (b"[" * 100_000, "row 2 is no JSON object"),
        (b'{"a": ' + b"1" * 5000 + b"}", "row 2 is no JSON object"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, line, what):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n")
    with pytest.raises(PromptFileError, match=what):
        list(read_rows(path, ["a"], 4))


def test_a_line_without_end_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": "' + b"x" * MAX_LINE_BYTES)
    with pytest.raises(PromptFileError, match="row 1 has more than"):
        list(read_rows(path, ["a"], 4))


def test_a_missing_column_names_those_that_exist(parquet):
    with pytest.raises(PromptFileError, match="no column 'prompt'") as caught:
        list(read_rows(parquet(ROWS), ["prompt"], 4))
    assert "a, nested, c" in caught.value.hint


def test_a_damaged_parquet_file_is_refused(parquet):
    path = parquet(ROWS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(PromptFileError, match="no sound Parquet file"):
        list(read_rows(path, ["a"], 4))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(PromptFileError, match="cannot be read"):
        list(read_rows(tmp_path / "none", ["a"], 4))


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_a_refusal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bytes") / "file"
    path.write_bytes(data)
    try:
        assert all(isinstance(row.values, dict) for row in read_rows(path, ["a"], 2))
    except PromptFileError as error:
        assert str(path) in error.message
