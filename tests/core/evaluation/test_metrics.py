import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_an_episode_in_branches_counts_once_and_all_its_tokens():
    place = {"parent_id": "a", "branches": 2}
    last = episode("a", solved=True, parsed_tool_calls=1, emitted_tool_calls=2)
    early = episode("a:b0", solved=True, sampled=4)
    rows = [
        early.model_copy(update={**place, "branch_index": 0}),
        last.model_copy(update={**place, "branch_index": 1}),
        episode("c", solved=False),
    ]
    stats = summarise(rows)
    assert (stats.rollouts, stats.solved, stats.generated_tokens) == (2, 1, 10)
    assert stats.success_by_difficulty["easy"]["rollouts"] == 2
    assert stats.parse_valid_tool_call_rate == 0.5
    assert [(row["task_id"], row["generated_tokens"]) for row in outcomes(rows)] == [
        ("task-a", 7),
        ("task-c", 3),
    ]


def test_outcomes_pair_by_task():
    rows = outcomes([episode("a", solved=True), episode("b", solved=False)])
    assert [row["task_id"] for row in rows] == ["task-a", "task-b"]
    assert [row["reward"] for row in rows] == [1.0, 0.0]


def repeated(**solved):
    """Return the episodes of tasks, one verdict each."""
    return [
        episode(f"{task}{n}", solved=own).model_copy(update={"task_id": task})
        for task, verdicts in solved.items()
        for n, own in enumerate(verdicts)
    ]


def test_pass_at_k_is_the_unbiased_estimate():
    """C53: a student that lost its diversity keeps pass@1 and loses pass@k."""
    stats = summarise(repeated(a=[True, False, False, False], b=[True] * 4, c=[False] * 4))
    assert stats.pass_at_k == pytest.approx({"1": 1.25 / 3, "2": 1.5 / 3, "4": 2 / 3})
    assert stats.success_rate == pytest.approx(5 / 12)


def test_pass_at_k_goes_as_far_as_the_task_with_the_fewest_episodes():
    stats = summarise(repeated(a=[True, False, False], b=[False] * 5))
    assert stats.pass_at_k == pytest.approx({"1": 1 / 6, "2": 1 / 3, "3": 1 / 2})
    assert summarise(repeated(a=[True], b=[False] * 5)).pass_at_k == {}
    assert summarise([]).pass_at_k == {}


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=6), min_size=1, max_size=4))
def test_pass_at_k_rises_with_k_and_starts_at_pass_at_one(verdicts):
    table = summarise(repeated(**{f"t{n}": one for n, one in enumerate(verdicts)})).pass_at_k
    rates = [table[k] for k in sorted(table, key=int)]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(sum(sum(one) / len(one) for one in verdicts) / len(verdicts))


def test_episodes_of_one_task_are_one_observation_of_the_interval():
    once = summarise(repeated(a=[True], b=[False]))
    often = summarise(repeated(a=[True] * 50, b=[False] * 50))
    assert often.success_interval == pytest.approx(once.success_interval)
    assert often.success_by_difficulty["easy"]["upper"] == pytest.approx(once.success_interval[1])


def test_entropy_length_and_who_ended_an_episode_are_told():
    """C53."""
    short = episode("a", solved=True, sampled=2)
    cut = episode("b", solved=False, sampled=6).model_copy(
        update={"termination_reason": TerminationReason.MAX_TOKENS}
    )
    stats = summarise([short, cut])
    assert stats.sampled_entropy == 0.5
    assert stats.generated_tokens_mean == 4.0
    assert stats.ended_itself_rate == 0.5
    assert summarise([]).sampled_entropy is None
