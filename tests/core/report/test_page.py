import re

import pytest

from core.report.data import (
    ArtifactRow,
    CyclePoint,
    EvaluationPoint,
    ReportData,
    ShownEpisode,
    TokenNote,
)
from core.report.page import render, write
from core.trajectory.spans import Span, SpanType
from core.trajectory.trajectory import TerminationReason, Trajectory, Turn, VerificationRecord

HOSTILE = "<script>alert('x')</script>\"'&</td>"


def stats(solved, rollouts=24):
    return {
        "rollouts": rollouts,
        "solved": solved,
        "success_rate": solved / rollouts,
        "success_interval": [max(solved / rollouts - 0.1, 0), min(solved / rollouts + 0.1, 1)],
        "success_by_difficulty": {
            "easy": {
                "rollouts": rollouts,
                "solved": solved,
                "rate": solved / rollouts,
                "lower": 0.1,
                "upper": 0.9,
            }
        },
        "termination_reasons": {"final_answer": rollouts},
        "failure_categories": {"solved": solved},
        "generated_tokens": 320,
    }


def episode(text=HOSTILE):
    return Trajectory(
        trajectory_id="calc-train-1:c0",
        task_id="calc-train-1",
        environment="calculator",
        token_ids=[1, 2, 3, 4],
        spans=[
            Span(span_type=SpanType.USER, start=0, end=2, segment_key="user", text=text),
            Span(
                span_type=SpanType.ASSISTANT_FINAL,
                start=2,
                end=4,
                segment_key="gen:0:block",
                turn_id=0,
                text="4",
            ),
        ],
        turns=[Turn(turn_id=0, is_final=True)],
        tokenizer_digest="t",
        verification=VerificationRecord(
            solved=False,
            reward=0.0,
            predicted=text,
            expected="4",
            failure_category="wrong_answer",
        ),
        termination_reason=TerminationReason.FINAL_ANSWER,
    )


def page_data(**changes):
    notes = [
        TokenNote(position=2, piece=HOSTILE, divergence_nats=1.25, weight=1.0, teacher_top="4"),
        TokenNote(position=3, piece="4", divergence_nats=0.0, weight=1.0),
    ]
    values = {
        "title": HOSTILE,
        "mode": "opd",
        "objective": "reverse KL, top-k + tail",
        "seed": 7,
        "recipe_yaml": f"run:\n  notes: {HOSTILE}\n",
        "evaluations": [
            EvaluationPoint(stage="before cold start", cycle=-1, stats=stats(0)),
            EvaluationPoint(stage="after cold start", cycle=0, stats=stats(12)),
            EvaluationPoint(stage="after OPD", cycle=2, stats=stats(18)),
        ],
        "cold_start_steps": [{"optimizer_step": 0, "loss": 3.0}],
        "cycles": [
            CyclePoint(
                cycle=0,
                rollouts=stats(4, 8),
                steps=[{"loss": 0.5, "grad_norm": 1.0, "lr": 1e-3, "selected_positions": 200}],
                seconds={"sample": 0.5, "score": 0.1, "update": 0.2},
            )
        ],
        "episodes": [ShownEpisode(trajectory=episode(), notes=notes)],
        "canaries": {"student_is_teacher_loss": 0.0},
        "artifacts": [
            ArtifactRow(step="sample_rollouts", name="cycle-001", key="a" * 16, digest="b" * 64)
        ],
        "provenance": {"commit": "abc"},
    }
    return ReportData(**(values | changes))


def visible(html):
    """The page without the plotting library and the figures' own scripts."""
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_the_three_success_numbers_stand_on_the_page():
    text = visible(render(page_data()))
    for stage, rate in (
        ("before cold start", "0.0 %"),
        ("after cold start", "50.0 %"),
        ("after OPD", "75.0 %"),
    ):
        card = text[text.index(f'<span class="soft">{stage}</span>') :][:300]
        assert f"<b>{rate}</b>" in card


def test_a_token_tells_its_divergence_when_hovered():
    text = visible(render(page_data()))
    assert "divergence 1.2500 nats" in text
    assert 'style="--heat:0.312"' in text  # 1.25 / 4 nats
    assert 'style="--heat:0.000"' in text


def test_throughput_is_sampled_tokens_over_seconds():
    assert '<td class="num">640</td>' in visible(render(page_data()))  # 320 tokens in 0.5 s


def test_text_from_recipe_prompt_and_model_is_escaped():
    assert HOSTILE not in visible(render(page_data()))
    assert "<script>alert" not in visible(render(page_data()))


def test_the_page_asks_no_other_host():
    text = visible(render(page_data()))
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)


def test_a_run_without_cycles_still_has_a_page():
    text = visible(render(page_data(cycles=[], episodes=[], cold_start_steps=[], canaries={})))
    assert "after OPD" in text
    assert "What the teacher said" not in text


@pytest.mark.parametrize("field", ["title", "evaluations", "seed"])
def test_an_incomplete_report_is_refused(field):
    values = page_data().model_dump()
    values.pop(field)
    with pytest.raises(ValueError, match=field):
        ReportData(**values)


def test_the_same_data_gives_the_same_bytes(tmp_path):
    for name in ("a.html", "b.html"):
        write(page_data(), tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
