"""A teacher teaches only after it showed what the recipe demands."""

from pathlib import Path

import pytest

from core.errors import QualificationError
from core.evaluation.qualification import MINIMA, check_evidence, measure, measured, shortfalls
from core.models.adapter_directory import AdapterDirectory, AdapterManifest, Evidence
from core.recipe.schema.adapters import Lora, TeacherAdapter
from core.trajectory.spans import Span, SpanType
from core.trajectory.trajectory import Counters, TerminationReason, Trajectory, Turn
from core.trajectory.trajectory import VerificationRecord as Verdict


def episode(*, solved, **counters):
    return Trajectory(
        trajectory_id="t",
        task_id="t",
        environment="calculator",
        token_ids=[1, 2],
        spans=[
            Span(span_type=SpanType.USER, start=0, end=1, segment_key="user"),
            Span(
                span_type=SpanType.ASSISTANT_FINAL,
                start=1,
                end=2,
                segment_key="gen:0:block",
                turn_id=0,
            ),
        ],
        turns=[Turn(turn_id=0, is_final=True)],
        logprobs=[-0.5],
        tokenizer_digest="t",
        verification=Verdict(
            solved=solved, reward=float(solved), failure_category="solved" if solved else "wrong"
        ),
        termination_reason=TerminationReason.FINAL_ANSWER,
        counters=Counters(**counters),
    )


def adapter(evidence: Evidence | None) -> AdapterDirectory:
    manifest = AdapterManifest(
        base_digest="b", tokenizer_digest="t", origin={}, files={}, evidence=evidence
    )
    return AdapterDirectory(Path("a"), "d", Lora(), manifest)


def evidence(**rates) -> Evidence:
    return Evidence(
        environment="calculator",
        params={},
        difficulty="easy",
        split="eval",
        tasks=10,
        rates={name: measured(*counts) for name, counts in rates.items()},
    )


DEMANDING = TeacherAdapter(
    path="a", require_policy_evaluation=True, minimum_strict_success_rate=0.8
)


def test_the_four_rates_of_some_episodes():
    rates = measure(
        [
            episode(solved=True, emitted_tool_calls=2, parsed_tool_calls=2,
                    tool_execution_successes=1, tool_execution_errors=1),
            episode(solved=False, emitted_tool_calls=1, tool_execution_errors=1, parse_errors=1),
            episode(solved=True, emitted_tool_calls=1, parsed_tool_calls=1, parse_errors=1),
            episode(solved=True),
        ]
    )  # fmt: skip
    assert (rates["strict_success"].successes, rates["strict_success"].total) == (2, 4)
    assert (rates["recovery_after_error"].successes, rates["recovery_after_error"].total) == (1, 2)
    assert rates["parse_valid_tool_call"].estimate == 0.75
    assert rates["tool_execution_success"].estimate == pytest.approx(1 / 3)
    assert rates["strict_success"].lower == pytest.approx(0.1500, abs=1e-4)
    assert rates["strict_success"].upper == pytest.approx(0.8500, abs=1e-4)


def test_a_rate_without_a_denominator_has_no_value_and_is_no_shortfall():
    rates = measure([episode(solved=True)])
    assert rates["recovery_after_error"].estimate is None
    assert shortfalls(rates, MINIMA) == []


def test_a_rate_at_its_minimum_is_enough_and_one_below_is_named():
    rates = {"strict_success": measured(8, 10), "parse_valid_tool_call": measured(94, 100)}
    minima = {"strict_success": 0.8, "parse_valid_tool_call": 0.95}
    (line,) = shortfalls(rates, minima)
    assert line.startswith("parse_valid_tool_call is 0.940 (94 of 100, 95 % interval 0.875 to")


def test_a_rate_that_was_never_measured_is_a_shortfall():
    assert shortfalls({}, {"strict_success": 0.5}) == [
        "strict_success was not measured, and at least 0.50 is demanded"
    ]


def test_an_adapter_that_shows_enough_may_teach():
    check_evidence(DEMANDING, adapter(evidence(strict_success=(9, 10))))


def test_nothing_is_asked_where_nothing_is_demanded():
    check_evidence(TeacherAdapter(path="a"), adapter(None))


def test_an_adapter_that_shows_too_little_is_refused():
    with pytest.raises(QualificationError, match=r"may not teach: strict_success is 0\.700"):
        check_evidence(DEMANDING, adapter(evidence(strict_success=(7, 10))))


@pytest.mark.parametrize("found", [adapter(None), AdapterDirectory(Path("a"), "d", Lora(), None)])
def test_an_adapter_without_an_evaluation_is_refused(found):
    with pytest.raises(QualificationError, match="carries no evaluation"):
        check_evidence(DEMANDING, found)
