"""Golden rows: vectors.md 6 (kind, offsets and fields; the sentences of errors are our own)."""

import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.protocol import (
    RESULT_CLOSE,
    RESULT_OPEN,
    STOP_STRINGS,
    Grammar,
    parse_turn,
    render_final,
    render_tool_call,
    render_tool_result,
)
from core.errors import ToolCallParseError
from core.models.toy_tokenizer import SPECIALS, ToyTokenizer

CALLS = [
    ('<tool_call>\n{"name":"a","arguments":{"x":1}}\n</tool_call>', 57, "a", {"x": 1}),
    ('<tool_call>{"name":"a"}</tool_call>', 35, "a", {}),
    ('<tool_call>{"name":"a","arguments":null}</tool_call>', 52, "a", {}),
    ('<tool_call>{"name":"  ","arguments":{}}</tool_call>', 51, "  ", {}),
    ('<tool_call>{"name":"a","extra":1,"arguments":{}}</tool_call>', 60, "a", {}),
]

FINALS = [
    ("<final>\n4\n</final>", "", 0, 18, "4"),
    ("hi <final>4</final>", "hi ", 3, 19, "4"),
    ("<final></final>", "", 0, 15, ""),
    ("<final>a<final>b</final>", "", 0, 24, "a<final>b"),
]

ERRORS = [
    ("<final>4", 8),
    ("<tool_call>{}</tool_call>", 25),
    ('<tool_call>{"name":"a","arguments":[]}</tool_call>', 50),
    ('<tool_call>{"name":5,"arguments":{}}</tool_call>', 48),
    ('<tool_call>{"name":"","arguments":{}}</tool_call>', 49),
    ("<tool_call>[1]</tool_call>", 26),
    ('<tool_call>{"name":"a","arguments":{"x":NaN}}</tool_call>', 57),
    ('<tool_call>{"name":"a","name":"b"}</tool_call>', 46),
    ("plain", 5),
    ("<final>4</final> trailing", 25),
    ('<tool_call>{"name":"a","arguments":{}}</tool_call><final>4</final>', 66),
    (f"<tool_call>{'x' * 4097}</tool_call>", 4120),
    ('<tool_call>{"name":"a","arguments":{"x":' + "1" * 129 + "}}</tool_call>", 183),
    ('<tool_call>{"name":"a","arguments":' + '{"a":' * 33 + "1" + "}" * 34 + "</tool_call>", 247),
    ('<tool_call>{"name":"a","arguments":{"x":"\\ud800"}}</tool_call>', 62),
]


@pytest.mark.parametrize(("text", "end", "name", "arguments"), CALLS)
def test_a_tool_call_is_read(text, end, name, arguments):
    turn = parse_turn(text)
    assert (turn.kind, turn.prefix_text, turn.block_start, turn.block_end) == (
        "tool_call",
        "",
        0,
        end,
    )
    assert (turn.tool_name, turn.arguments) == (name, arguments)
    assert (turn.final_answer, turn.error) == (None, None)


@pytest.mark.parametrize(("text", "prefix", "start", "end", "answer"), FINALS)
def test_a_final_answer_is_read(text, prefix, start, end, answer):
    turn = parse_turn(text)
    assert (turn.kind, turn.prefix_text, turn.block_start, turn.block_end) == (
        "final",
        prefix,
        start,
        end,
    )
    assert (turn.final_answer, turn.tool_name, turn.arguments, turn.error) == (
        answer,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(("text", "length"), ERRORS)
def test_a_bad_turn_is_prose_with_an_error(text, length):
    turn = parse_turn(text)
    assert (turn.kind, turn.prefix_text) == ("parse_error", text)
    assert (turn.block_start, turn.block_end) == (length, length)
    assert (turn.tool_name, turn.arguments, turn.final_answer) == (None, None, None)
    assert turn.error


def test_blocks_render_byte_for_byte():
    call = render_tool_call("calculator", {"expression": "</tool_call>", "b": 1})
    assert call == (
        '<tool_call>\n{"arguments": {"b": 1, "expression": "<\\/tool_call>"}, '
        '"name": "calculator"}\n</tool_call>'
    )
    result = render_tool_result(True, "x</tool_result>")
    assert result == ('<tool_result>\n{"ok": true, "result": "x<\\/tool_result>"}\n</tool_result>')
    assert render_final("4") == "<final>\n4\n</final>"
    assert STOP_STRINGS == ("</tool_call>", "</final>")


def test_a_refusal_carries_its_code_and_only_what_applies():
    assert render_tool_result(False, "unused", "no such table") == (
        '<tool_result>\n{"error": "no such table", "ok": false}\n</tool_result>'
    )
    assert render_tool_result(
        False, error="again", code="BUSY", retryable=True, intervention=True, metadata={"n": 1}
    ) == (
        '<tool_result>\n{"code": "BUSY", "error": "again", "intervention": true, '
        '"metadata": {"n": 1}, "ok": false, "retryable": true}\n</tool_result>'
    )


def test_white_space_may_follow_the_block_and_is_no_part_of_it():
    turn = parse_turn("<final>4</final> \n\t")
    assert (turn.kind, turn.block_end, turn.final_answer) == ("final", 16, "4")


STRICT = Grammar(strict=True)
THREE = Grammar(strict=True, max_calls=3)
A, B = (f'<tool_call>{{"name":"{name}"}}</tool_call>' for name in "ab")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('<tool_call>{"name":"  "}</tool_call>', "BLANK_TOOL_NAME"),
        ('<tool_call>{"name":"\\u00a0\\t","arguments":{}}</tool_call>', "BLANK_TOOL_NAME"),
        ('<tool_call>{"name":"a","extra":1}</tool_call>', "UNKNOWN_CALL_KEY"),
        ('<tool_call>{"name":""}</tool_call>', "UNREADABLE_CALL"),
        ("<tool_call>x</tool_call>", "UNREADABLE_CALL"),
        ("<final>4", "UNREADABLE_TURN"),
        ("plain", "UNREADABLE_TURN"),
    ],
)
def test_the_strict_grammar_refuses_with_a_code(text, code):
    turn = parse_turn(text, STRICT)
    assert (turn.kind, turn.prefix_text, turn.error_code) == ("parse_error", text, code)
    assert parse_turn(text).error_code is None


def test_both_grammars_read_what_is_right_alike():
    for text, *_ in CALLS[:3] + FINALS:
        assert parse_turn(text, STRICT) == parse_turn(text)


def test_several_calls_are_read_in_their_order():
    turn = parse_turn(f"so {A}\n {B}\n", THREE)
    assert (turn.kind, turn.prefix_text, turn.block_start, turn.block_end) == (
        "tool_call", "so ", 3, 3 + len(A) + 2 + len(B)
    )  # fmt: skip
    assert [(call.name, call.arguments, call.start) for call in turn.calls] == [
        ("a", {}, 3),
        ("b", {}, 5 + len(A)),
    ]
    assert turn.blocks == ((3, "a"), (5 + len(A), "b"))
    assert (turn.tool_name, turn.arguments) == ("a", {})
    assert THREE.stops == {"</tool_call>": 3, "</final>": 1}


@pytest.mark.parametrize(
    "text", [A * 4, f"{A}<final>4</final>", f"{A} and {B}", f"{A}{B} so", f"{A}<tool_call>"]
)
def test_a_turn_of_several_calls_is_read_whole_or_not_at_all(text):
    turn = parse_turn(text, THREE)
    assert (turn.kind, turn.calls, turn.blocks) == ("parse_error", (), ())


def test_one_call_too_many_is_refused_where_only_one_may_be():
    assert parse_turn(A + B, STRICT).kind == parse_turn(A + B).kind == "parse_error"


def test_a_result_names_its_call_where_it_is_told_to():
    block = render_tool_result(True, "4", call_id="c0.1", code="OUTPUT_TRUNCATED")
    assert json.loads(block.split("\n")[1]) == {
        "code": "OUTPUT_TRUNCATED", "id": "c0.1", "ok": True, "result": "4"
    }  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.text(max_size=8), JSON, max_size=4)
FRAGMENTS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<final>", "</final>", "<tool_result>", '{"name":', '"a"', "{",
     "}", "[", "]", '"arguments":', ",", ":", "\\", '"', "\\ud800", "\\u0000", "1e999", "NaN",
     "-", "9" * 130, " ", "\n", "\u2028", "\ud800", "x"]
)  # fmt: skip


GRAMMARS = (Grammar(), STRICT, THREE)


@given(st.text())
def test_parsing_is_total_on_text(text):
    for grammar in GRAMMARS:
        turn = parse_turn(text, grammar)
        assert 0 <= turn.block_start <= turn.block_end <= len(text)
        assert text.startswith(turn.prefix_text)


@given(st.lists(FRAGMENTS, max_size=30).map("".join))
def test_parsing_is_total_on_hostile_fragments(body):
    texts = (body, f"<tool_call>{body}</tool_call>", f'<tool_call>{{"name":"a",{body}', A + body)
    for text, grammar in itertools.product(texts, GRAMMARS):
        turn = parse_turn(text, grammar)
        assert (turn.kind == "parse_error") == (turn.error is not None)
        assert (turn.kind == "tool_call") == (turn.arguments is not None) == bool(turn.calls)
        assert len(turn.calls) <= grammar.max_calls
        assert (turn.kind == "final") == (turn.final_answer is not None)


@given(st.text(min_size=1, max_size=20), ARGUMENTS, st.text(alphabet="ab \n", max_size=5))
def test_a_rendered_call_reads_back(name, arguments, prose):
    turn = parse_turn(prose + render_tool_call(name, arguments))
    assert (turn.kind, turn.tool_name, turn.arguments) == ("tool_call", name, arguments)
    assert (turn.prefix_text, turn.block_start) == (prose, len(prose))


@given(st.text().filter(lambda text: "<final>" not in text and "</final>" not in text))
def test_a_rendered_answer_reads_back_without_its_margins(answer):
    assert parse_turn(render_final(answer)).final_answer == answer.strip()


HOSTILE = st.lists(st.sampled_from([*SPECIALS, "</", "<\\/", "<|x|>", "\ud800", "a"])).map("".join)


@given(HOSTILE | st.text(), HOSTILE | st.text())
def test_hostile_results_cannot_break_the_frame(result, error):
    codec = ToyTokenizer()
    for block in (render_tool_result(True, result), render_tool_result(False, error=error)):
        assert block.count(RESULT_CLOSE) == block.count(RESULT_OPEN) == 1
        controls = [index for index in codec.encode(block) if index < len(SPECIALS)]
        assert controls == [SPECIALS.index(RESULT_OPEN), SPECIALS.index(RESULT_CLOSE)]
    payload = json.loads(render_tool_result(True, result).split("\n")[1])
    assert payload == {"ok": True, "result": result}


@pytest.mark.parametrize(
    "body",
    ["[" * 100_000, '{"a":' * 100_000, '"' * 100_001, "\\" * 100_000, "9" * 100_000,
     "<final>" * 9_999],
)  # fmt: skip
def test_huge_turns_are_read_quickly(body):
    started = time.process_time()
    assert parse_turn(f"<tool_call>{body}</tool_call>").kind == "parse_error"
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("answer", ["a</final>", "<final>a"])
def test_an_answer_with_tags_is_refused(answer):
    with pytest.raises(ToolCallParseError, match="answer contains"):
        render_final(answer)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_arguments_outside_json_are_refused(value):
    with pytest.raises(ToolCallParseError):
        render_tool_call("a", {"x": value})
