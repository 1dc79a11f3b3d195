"""Trajectories at rest."""

import json
import re
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.registry import make_environment
from core.errors import TrajectoryError
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.oracle import oracle_trajectory
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
        ({"schema_version": 1}, "row 2, schema_version: 1, this version reads 2"),
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


def test_a_turn_of_an_older_shape_is_refused_by_its_key(path):
    old = json.loads(LINE)
    turns = [{"turn_id": 0, "tool_call": {"call_id": "c0", "name": "a"}}]
    path.write_text(json.dumps(old | {"termination_reason": "max_turns", "turns": turns}))
    with pytest.raises(TrajectoryError, match="tool_call"):
        read_trajectories(path)


# ---------------------------------------------------------------- one altered field at a time

FREE = {
    "names and identities": "trajectory_id task_id environment policy_version tokenizer_digest "
    "model_digest metadata.*",
    "what was said, and by which model": "token_ids.# spans.#.text spans.#.segment_key logprobs.# "
    "kept_mass.#",
    "what the environment said": "spans.#.tool_name spans.#.env_state_id turns.#.tool_calls.#.name "
    "turns.#.tool_calls.#.arguments.* turns.#.tool_results.#.result turns.#.tool_results.#.error "
    "turns.#.tool_results.#.error_code turns.#.tool_results.#.retryable "
    "turns.#.tool_results.#.intervention turns.#.tool_results.#.env_state_id "
    "turns.#.tool_results.#.metadata.* verification.reward verification.predicted "
    "verification.expected",
    "events that no turn repeats": "counters.emitted_tool_calls counters.invalid_tool_calls "
    "counters.tool_execution_errors counters.unknown_tool_calls counters.parse_errors "
    "counters.final_answers_emitted counters.final_answers_format_valid "
    "counters.final_answers_verified",
}
"""Fields that nothing else in a row implies: another value of their type is another fact."""
PATTERNS = [
    re.compile(re.escape(one).replace(r"\#", r"\d+").replace(r"\*", ".*"))
    for text in FREE.values()
    for one in text.split()
]


def written_row():
    """Return a row as it is written after an episode with an error, calls and an answer."""
    world = make_environment("sqlite_recovery", prompt_style="compact")
    task = world.generate_task(0, seed=3, difficulty="hard", split="train")
    trace = oracle_trajectory(world, task, ToyTokenizer())
    count = sum(trace.model_mask)
    own = {"logprobs": [-0.5] * count, "kept_mass": [0.9] * count, "model_digest": "m"}
    return trace.model_copy(update={**own, "policy_version": 4})


def leaves(value, path=()):
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in inside:
        if isinstance(part, dict | list):
            yield (*path, name), part
            yield from leaves(part, (*path, name))
        else:
            yield (*path, name), part


def other_values(value):
    """Return values of the same type that differ, and one of another type."""
    if isinstance(value, bool):
        return [not value, "yes"]
    if isinstance(value, int):
        return [value + 1, value - 1, "1"]
    if isinstance(value, float):
        return [value - 0.01, value + 1.0, "1"]
    return [f"{value}x", 3] if isinstance(value, str) else [3]


def altered(document, path, value):
    copied = json.loads(json.dumps(document))
    *before, last = path
    reduce(lambda part, name: part[name], before, copied)[last] = value
    return copied


def test_one_altered_field_is_refused_by_row_or_is_a_fact_of_its_own(tmp_path):
    """Nothing that a row says twice can be altered in one place."""
    path = tmp_path / "rows.jsonl"
    write_trajectories(path, [written_row()])
    document = json.loads(path.read_text())
    first_tokens = {"token_ids", "logprobs", "kept_mass"}
    tried, passed = 0, set()
    for place, value in leaves(document):
        if place[0] in first_tokens and len(place) > 1 and place[1] > 2:
            continue  # the rest of a long list is like its first three
        for other in other_values(value):
            tried += 1
            path.write_text(json.dumps(altered(document, place, other)) + "\n")
            try:
                read_trajectories(path)
            except TrajectoryError as error:
                assert "row 1" in error.message
            else:
                passed.add(".".join(map(str, place)))
    assert tried > 300
    assert sorted(one for one in passed if not any(p.fullmatch(one) for p in PATTERNS)) == []


def test_a_field_that_is_taken_away_is_refused_or_had_a_default(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_trajectories(path, [written_row()])
    document = json.loads(path.read_text())
    required = {name for name, field in Trajectory.model_fields.items() if field.is_required()}
    for name in document:
        path.write_text(json.dumps({key: v for key, v in document.items() if key != name}) + "\n")
        if name in required or name == "schema_version":
            with pytest.raises(TrajectoryError, match=f"row 1, {name}"):
                read_trajectories(path)


@pytest.mark.parametrize("mask", ["model_generated_mask", "critical_mask", "attention_mask"])
def test_a_mask_is_not_stored_and_a_stored_one_is_not_read(tmp_path, mask):
    path = tmp_path / "rows.jsonl"
    write_trajectories(path, [written_row()])
    document = json.loads(path.read_text())
    assert mask not in document
    path.write_text(json.dumps({**document, mask: [1] * len(document["token_ids"])}) + "\n")
    with pytest.raises(TrajectoryError, match=f"row 1, {mask}: Extra inputs"):
        read_trajectories(path)
