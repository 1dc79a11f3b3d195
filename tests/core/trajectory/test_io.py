"""Trajectories at rest."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import TrajectoryError
from core.trajectory.io import read_trajectories, write_trajectories
from core.trajectory.trajectory import Trajectory

FIELDS = {
    "trajectory_id": "calc-train-0:v3:s7",
    "task_id": "calc-train-0",
    "environment": "calculator",
    "token_ids": [3, 1, 4],
    "spans": [
        {"span_type": "system", "start": 0, "end": 1, "segment_key": "sys", "text": "a\u2028b"},
        {"span_type": "assistant_final", "start": 1, "end": 3, "segment_key": "gen:0:block"},
    ],
    "logprobs": [-0.1, -0.30000001192092896],
    "tokenizer_digest": "d",
    "verification": {"solved": False, "reward": 0.0, "failure_category": "wrong_answer"},
    "termination_reason": "final_answer",
}

LINE = (
    '{"schema_version":2,"trajectory_id":"calc-train-0:v3:s7","task_id":"calc-train-0",'
    '"environment":"calculator","token_ids":[3,1,4],"spans":[{"span_type":"system","start":0,'
    '"end":1,"segment_key":"sys","text":"a\u2028b"},{"span_type":"assistant_final","start":1,'
    '"end":3,"segment_key":"gen:0:block"}],"logprobs":[-0.1,-0.30000001192092896],'
    '"tokenizer_digest":"d","verification":{"solved":false,"reward":0.0,'
    '"failure_category":"wrong_answer"},"termination_reason":"final_answer"}\n'
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trajectories.jsonl"


def rewrite(path, **changes):
    good = json.loads(LINE)
    rows = [good, {key: v for key, v in {**good, **changes}.items() if v is not None}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_row_is_written_without_masks_and_defaults(path):
    write_trajectories(path, [Trajectory(**FIELDS)])
    assert path.read_bytes() == LINE.encode()


def test_rows_come_back_equal_and_in_order(path):
    rows = [Trajectory(**{**FIELDS, "trajectory_id": f"t{n}"}) for n in range(3)]
    write_trajectories(path, iter(rows))
    assert read_trajectories(path) == rows
    assert path.read_bytes().count(b"\n") == 3


def test_no_rows_are_an_empty_file(path):
    write_trajectories(path, [])
    assert path.read_bytes() == b""
    assert read_trajectories(path) == []


@given(
    st.lists(st.floats(-100, 0), min_size=2, max_size=2),
    st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none(), max_size=4),
)
def test_every_number_and_text_survives(tmp_path_factory, logprobs, metadata):
    path = tmp_path_factory.mktemp("io") / "rows.jsonl"
    row = Trajectory(**{**FIELDS, "logprobs": logprobs, "metadata": metadata})
    write_trajectories(path, [row])
    assert read_trajectories(path) == [row]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"token_ids": [3, 1]}, "row 2, row: .*spans end at 3 but there are 2 tokens"),
        ({"token_ids": [3, "1", 4]}, r"row 2, token_ids\.1"),
        ({"token_ids": [3, 1.0, 4]}, r"row 2, token_ids\.1"),
        ({"token_ids": [3, True, 4]}, r"row 2, token_ids\.1"),
        ({"model_mask": [0, 1, 1]}, "row 2, model_mask: Extra inputs"),
        ({"task_id": None}, "row 2, task_id: Field required"),
        ({"logprobs": [-1.0]}, "row 2, row: .*logprobs has 1 entries"),
        ({"logprobs": [float("nan"), -1.0]}, "row 2: no JSON object .*NaN is not a finite"),
        ({"metadata": {"x": float("inf")}}, "row 2: no JSON object .*Infinity is not a finite"),
        ({"schema_version": 3}, "row 2, schema_version: 3, this version reads 1 and 2"),
        ({"schema_version": None}, "row 2, schema_version: None"),
    ],
)
def test_a_damaged_row_is_named_by_file_row_and_field(path, changes, place):
    rewrite(path, **changes)
    with pytest.raises(TrajectoryError, match=place) as caught:
        read_trajectories(path)
    assert str(path) in caught.value.message


def test_the_version_is_checked_before_anything_else(path):
    path.write_text('{"schema_version": 99, "tokens_of_the_future": []}\n')
    with pytest.raises(TrajectoryError, match="schema_version: 99"):
        read_trajectories(path)


@pytest.mark.parametrize(
    "text", ["\n", "[]\n", "{\n", "\n" + LINE, LINE + "half", "[" * 10**5, "\x00"]
)
def test_a_line_that_is_no_row_is_refused(path, text):
    path.write_text(text)
    with pytest.raises(TrajectoryError, match=r"row [12]"):
        read_trajectories(path)


def test_a_file_that_is_no_text_is_refused(path):
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(TrajectoryError, match="row 1: no JSON object"):
        read_trajectories(path)


def test_a_missing_file_is_refused(path):
    with pytest.raises(TrajectoryError, match="No such file"):
        read_trajectories(path)


def test_a_row_that_was_altered_in_memory_is_not_written(path):
    row = Trajectory(**FIELDS)
    row.token_ids.append(5)
    with pytest.raises(TrajectoryError, match=r"row 1, row: .*spans end at 3"):
        write_trajectories(path, [row])
    assert not path.exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1}, "\ud800"])
def test_metadata_outside_json_are_not_written(path, value):
    row = Trajectory(**{**FIELDS, "metadata": {"x": value}})
    with pytest.raises(TrajectoryError, match="row 1"):
        write_trajectories(path, [row])
    assert not path.exists()


def test_a_row_of_version_1_is_read_with_its_one_call(path):
    old = json.loads(LINE)
    call, result = {"call_id": "c0", "name": "a"}, {"call_id": "c0", "ok": True, "result": "4"}
    turns = [{"turn_id": 0, "tool_call": call, "tool_result": result}]
    path.write_text(json.dumps(old | {"schema_version": 1, "turns": turns}))
    (row,) = read_trajectories(path)
    assert [one.name for one in row.turns[0].tool_calls] == ["a"]
    assert [one.result for one in row.turns[0].tool_results] == ["4"]
    write_trajectories(path, [row])
    assert json.loads(path.read_text())["turns"] == [
        {"turn_id": 0, "tool_calls": [call], "tool_results": [result]}
    ]
    assert path.read_text().startswith('{"schema_version":2,')
