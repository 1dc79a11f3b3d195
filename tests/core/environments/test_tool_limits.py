import pytest

from core.environments.base import StepResult, ToolLimits
from core.environments.tool_limits import bounded, failed, timed_out

LIMITS = ToolLimits(characters=100)


def test_a_result_within_its_limits_stays_as_it_is():
    result = StepResult(True, "s:1", "x" * 100, metadata={"n": 1})
    assert bounded(result, LIMITS) == result


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (StepResult(True, "s", "x" * 10**7), {"result": "x" * 100}),
        (StepResult(False, "s", error="x" * 101), {"error": "x" * 100}),
        (StepResult(True, "s", "4", metadata={"x": "x" * 101}), {"result": "4", "metadata": {}}),
    ],
)
def test_what_a_tool_writes_is_cut_and_says_so(result, kept):
    cut = bounded(result, LIMITS)
    assert (cut.ok, cut.error_code) == (result.ok, "OUTPUT_TRUNCATED")
    for name, value in kept.items():
        assert getattr(cut, name) == value


def test_a_tool_s_own_code_is_kept():
    result = StepResult(False, "s", error="x" * 101, error_code="SQL_EXECUTION_ERROR")
    assert bounded(result, LIMITS).error_code == "SQL_EXECUTION_ERROR"


def test_lone_surrogates_are_written_out():
    facts = {"k": "\ud800", "\udc00": ["a\\b"]}
    result = bounded(StepResult(True, "\ud800", "a\udfff", metadata=facts), LIMITS)
    assert (result.state_id, result.result) == ("\\ud800", "a\\udfff")
    assert result.metadata == {"k": "\\ud800", "\\udc00": ["a\\b"]}
    code = bounded(StepResult(False, "s", error="e", error_code="\ud800" + "x" * 10**6), LIMITS)
    assert code.error_code == "\\ud800" + "x" * 94


@pytest.mark.parametrize(
    "result",
    [None, "4", StepResult(True, "s", 4), StepResult(1, "s"), StepResult(True, None),  # pyright: ignore
     StepResult(True, "s", metadata={"x": object()}), StepResult(True, "s", metadata={"x": {1}})],
)  # fmt: skip
def test_what_is_no_result_is_refused(result):
    with pytest.raises(TypeError):
        bounded(result, LIMITS)


def test_results_that_no_tool_gave_say_why():
    late = timed_out("search", ToolLimits(seconds=0.5))
    assert (late.ok, late.error_code) == (False, "TOOL_TIMEOUT")
    assert late.error == "'search' gave no result within 0.5 s"
    assert failed("it broke", "TOOL_ERROR").failure_category == "tool_error"
