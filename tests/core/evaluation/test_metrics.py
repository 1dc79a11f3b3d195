import pytest

from core.evaluation.metrics import outcomes, summarise
from core.trajectory.spans import Span, SpanType
from core.trajectory.trajectory import (
    Counters,
    TerminationReason,
    Trajectory,
    Turn,
    VerificationRecord,
)


def episode(name, *, solved, difficulty="easy", sampled=3, kept=(), **counters):
    """Two prompt tokens, then ``sampled`` model tokens."""
    return Trajectory(
        trajectory_id=name,
        task_id=f"task-{name}",
        environment="calculator",
        token_ids=[1, 2, *[5] * sampled],
        spans=[
            Span(span_type=SpanType.USER, start=0, end=2, segment_key="user"),
            Span(
                span_type=SpanType.ASSISTANT_FINAL,
                start=2,
                end=2 + sampled,
                segment_key="gen:0:block",
                turn_id=0,
            ),
        ],
        turns=[Turn(turn_id=0, is_final=True)],
        logprobs=[-0.5] * sampled,
        kept_mass=list(kept),
        tokenizer_digest="t",
        verification=VerificationRecord(
            solved=solved,
            reward=float(solved),
            failure_category="solved" if solved else "wrong_answer",
        ),
        termination_reason=TerminationReason.FINAL_ANSWER,
        counters=Counters(**counters),
        metadata={"difficulty": difficulty},
    )


def test_rates_are_over_their_own_denominators():
    stats = summarise(
        [
            episode(
                "a",
                solved=True,
                emitted_tool_calls=2,
                parsed_tool_calls=1,
                tool_execution_successes=1,
                final_answers_emitted=1,
                final_answers_format_valid=1,
            ),
            episode(
                "b",
                solved=False,
                sampled=5,
                emitted_tool_calls=2,
                parsed_tool_calls=2,
                tool_execution_successes=1,
                tool_execution_errors=1,
                final_answers_emitted=1,
            ),
        ]
    )
    assert stats.success_rate == 0.5
    assert stats.success_interval == pytest.approx((0.0945312, 0.9054688), abs=1e-6)
    assert stats.parse_valid_tool_call_rate == 0.75
    assert stats.tool_execution_success_rate == pytest.approx(2 / 3)
    assert stats.final_answer_format_validity_rate == 0.5
    assert stats.generated_tokens == 8
    assert stats.generated_tokens_per_solved == 8.0
    assert stats.sampled_logprob_mean == -0.5
    assert stats.termination_reasons == {"final_answer": 2}
    assert stats.failure_categories == {"solved": 1, "wrong_answer": 1}


def test_success_is_split_by_difficulty():
    stats = summarise(
        [
            episode("a", solved=True),
            episode("b", solved=True),
            episode("c", solved=False, difficulty="hard"),
        ]
    )
    assert stats.success_by_difficulty["easy"]["rate"] == 1.0
    assert stats.success_by_difficulty["hard"]["solved"] == 0
    assert stats.success_by_difficulty["easy"]["lower"] == pytest.approx(0.34238, abs=1e-5)


def test_kept_mass_is_none_when_nothing_was_truncated():
    assert summarise([episode("a", solved=True)]).kept_mass_mean is None
    assert summarise(
        [episode("a", solved=True, kept=(1.0, 0.8, 0.9))]
    ).kept_mass_mean == pytest.approx(0.9)


def test_no_episodes_give_no_rates():
    stats = summarise([])
    assert stats.rollouts == 0
    assert stats.success_rate is None
    assert stats.success_interval is None
    assert stats.turns_mean is None


def test_outcomes_pair_by_task():
    rows = outcomes([episode("a", solved=True), episode("b", solved=False)])
    assert [row["task_id"] for row in rows] == ["task-a", "task-b"]
    assert [row["reward"] for row in rows] == [1.0, 0.0]
