"""The numbers that say whether a run distilled at all."""

import pytest

from core.losses.registry import OBJECTIVES
from core.report.data import CyclePoint, ReportData
from core.report.figures import diagnostic_series, reference_figure
from core.report.page import render
from core.report.signals import CANARIES, MEANINGS, canary_rows, signal_rows

CANARY = {
    "checked_trajectories": 4,
    "loss": 0.76,
    "gradient_norm": 0.5,
    "parameters_without_gradient": [],
    "frozen_digest": "0123456789abcdef0123",
    "generation_prompts_differ": False,
}
STATS = {"rollouts": 4, "solved": 1, "generated_tokens": 90, "sampled_entropy": 1.25}


def cycle(number, selection=None, **diagnostics):
    steps = [{"loss": 0.1, "objective_diagnostics": diagnostics}]
    return CyclePoint(cycle=number, rollouts=STATS, selection=selection or {}, steps=steps)


def page(**parts):
    facts = {"title": "t", "mode": "opd", "objective": "o", "seed": 1, "recipe_yaml": ""}
    return ReportData(**facts, evaluations=[], **parts)


def test_canaries_come_in_the_order_of_the_checks_with_what_is_sound():
    rows = canary_rows(dict(reversed(CANARY.items())))
    assert [row["name"] for row in rows] == [CANARIES[name][0] for name in CANARY]
    assert rows[2] == {"name": "gradient norm", "value": 0.5, "sound": "above 0"}
    assert [row["value"] for row in rows[3:]] == ["none", "0123456789abcdef", "false"]
    assert canary_rows({}) == []


def test_a_canary_that_this_version_does_not_know_is_shown_last():
    rows = canary_rows({"heart_beat": 1, **CANARY})
    assert rows[-1] == {"name": "heart beat", "value": 1, "sound": ""}


def test_the_last_cycle_s_signal_is_shown_with_its_meaning():
    """C86: beside held-out success a report says what would look healthy, and what does not."""
    data = page(
        cycles=[
            cycle(0, student_mass=0.9),
            cycle(1, {"teacher_queried_position_ratio": 0.4}, student_mass=0.7),
        ]
    )
    rows = {row["name"]: row["value"] for row in signal_rows(data)}
    assert rows == {"teacher_queried_position_ratio": 0.4, "student_mass": 0.7}
    assert signal_rows(page()) == []


def test_the_divergence_from_a_reference_has_a_curve_and_a_row():
    compared, plain = ([cycle(n) for n in (0, 1)] for _ in range(2))
    for number, each in enumerate(compared):
        each.steps[0]["reference_kl_mean"] = 0.25 * number
    [row] = signal_rows(page(cycles=compared))
    assert (row["name"], row["value"]) == ("reference_kl_mean", 0.25)
    [curve] = reference_figure(compared).data
    assert (list(curve.x), list(curve.y)) == ([1, 2], [0.0, 0.25])
    assert "KL(student ‖ reference)" in render(page(cycles=compared))
    assert reference_figure(plain) is None
    assert "KL(student" not in render(page(cycles=plain))


def test_every_diagnostic_of_every_objective_has_a_meaning_here():
    reported = {n for o in OBJECTIVES.values() for n in o.diagnostics + o.support_diagnostics}
    assert reported <= set(MEANINGS)


def test_no_saving_of_compute_is_claimed():
    text = render(page(canaries=CANARY, cycles=[cycle(0, {"teacher_queried_position_ratio": 0.4})]))
    assert "compute saved" not in text
    assert "Queried positions are no saved time" in text
    assert "gradient norm with the student as its own teacher" not in text
    assert "Canaries" in text


@pytest.mark.parametrize(
    ("selection", "diagnostics", "expected"),
    [
        ({"teacher_queried_position_ratio": 0.5}, {}, {"positions queried": 0.5}),
        ({"unaligned_bytes": 3, "model_bytes": 12}, {}, {"bytes without a target": 0.25}),
        ({}, {"clamped": 0.9, "k1": 2.0}, {"positions whose gradient verl's clamp loses": 0.9}),
        ({}, {}, {}),
    ],
)
def test_only_shares_are_drawn_over_the_cycles(selection, diagnostics, expected):
    series = diagnostic_series([cycle(0, selection, **diagnostics)])
    assert series == {label: [(1, pytest.approx(value))] for label, value in expected.items()}


def test_a_run_that_was_stopped_says_why():
    watch = {
        "sampled_entropy": 0.01, "success_rate": 0.5, "cycles_below_entropy": 3,
        "cycles_below_success": 0, "stopped": "student_entropy",
    }  # fmt: skip
    text = render(page(watch=watch))
    assert "the student's entropy stayed below its bound for 3 cycles" in text.replace("&#39;", "'")
    assert "Stopped early" not in render(page(watch={**watch, "stopped": None}))
