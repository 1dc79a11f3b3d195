"""Figures of a benchmark: differences with intervals, and curves with a band over seeds."""

from collections.abc import Sequence

import plotly.graph_objects as go

from core.report.benchmark_data import BenchmarkReport
from core.report.benchmark_tables import effect
from core.report.data import Json
from core.report.figures import INK, SOFT, STUDENT, TEACHER, blank, fragment

AXES = {
    "optimizer_steps": "updates after the cold start",
    "selected_tokens": "selected tokens after the cold start",
    "generated_tokens": "generated tokens after the cold start",
}
"""What a point of a curve may be drawn against."""

COLOURS = (
    *("#2563eb", "#d97706", "#15803d", "#b91c1c", "#7c3aed", "#0891b2"),
    *("#be185d", "#4d7c0f", "#1f2933", "#9aa5b1", "#a16207", "#475569"),
)


def benchmark_figures(report: BenchmarkReport) -> list[str]:
    """Return the figures that have data, as fragments for a page that holds plotly once."""
    found = [forest_figure(report, measure) for measure in ("success", "recovery")]
    found += [curve_figure(report, axis) for axis in AXES]
    return [fragment(one, f"figure-{at}") for at, one in enumerate(found) if one is not None]


def forest_figure(report: BenchmarkReport, measure: str) -> go.Figure | None:
    """Return every paired difference with its interval and numbers; None where there is none."""
    rows = [
        one
        for one in report.comparison["comparisons"]
        if one.get("measure") == measure and one.get("effect") is not None
    ]
    if not rows:
        return None
    rows = rows[::-1]  # plotly draws the first at the bottom
    names = [_plain(f"{one['arm']} − {one['against']}") for one in rows]
    effects = [100 * one["effect"] for one in rows]
    figure = blank(f"Paired differences in {measure}", "percentage points", "")
    figure.add_scatter(
        x=effects,
        y=names,
        mode="markers+text",
        text=[effect(one) for one in rows],
        textposition="top center",
        textfont={"size": 11, "color": INK},
        customdata=[_plain(one["verdict"]) for one in rows],
        hovertemplate="%{y}: %{text}<br>%{customdata}<extra></extra>",
        marker={"size": 9, "color": [_colour(one) for one in rows]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [100 * one["upper"] - x for one, x in zip(rows, effects, strict=True)],
            "arrayminus": [x - 100 * one["lower"] for one, x in zip(rows, effects, strict=True)],
            "color": SOFT,
            "thickness": 2,
        },
        showlegend=False,
    )
    ends = [0.0, *(100 * one[end] for one in rows for end in ("lower", "upper"))]
    room = 0.35 * (max(ends) - min(ends)) or 1.0  # for the numbers above the outermost points
    figure.update_xaxes(range=[min(ends) - room, max(ends) + room])
    figure.add_vline(x=0, line={"color": INK, "width": 1, "dash": "dot"})
    figure.update_yaxes(automargin=True, range=[-0.6, len(rows) - 0.3])
    figure.update_layout(height=120 + 44 * len(rows))
    return figure


def curve_figure(report: BenchmarkReport, axis: str) -> go.Figure | None:
    """Return held-out success of every arm against what it spent, mean and range over seeds."""
    figure = blank(f"Success against {AXES[axis].split(' after')[0]}", AXES[axis], "share solved")
    drawn, highest = False, 0.0
    for place, arm in enumerate(report.arms):
        points = curve_points(report, arm, axis)
        if len(points) > 1 and len({x for x, *_ in points}) > 1:
            drawn, highest = True, max(highest, *(high for *_, high in points))
            _add_band(figure, arm, points, COLOURS[place % len(COLOURS)])
    figure.update_yaxes(range=[-0.01, min(1.02, max(1.2 * highest, 0.1) + 0.02)], tickformat=".0%")
    figure.update_layout(height=460)
    figure.update_layout(legend={"y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"})
    return figure if drawn else None


def curve_points(
    report: BenchmarkReport, arm: str, axis: str
) -> list[tuple[float, float, float, float]]:
    """Return, per evaluation from the cold start on, the mean spent, and mean, lowest, highest.

    An evaluation counts where every seed of the arm that has results has it.
    """
    found = [one for seed in report.seeds if (one := report.result(arm, seed))]
    by_cycle: dict[int, list[Json]] = {}
    for one in found:
        for point in one["curve"]:
            if point["cycle"] >= 0 and point["stats"]["success_rate"] is not None:
                by_cycle.setdefault(point["cycle"], []).append(point)
    points = []
    for _, each in sorted(by_cycle.items()):
        if len(each) == len(found):
            rates = [point["stats"]["success_rate"] for point in each]
            spent = sum(point[axis] for point in each) / len(each)
            points.append((spent, sum(rates) / len(rates), min(rates), max(rates)))
    return points


def _add_band(
    figure: go.Figure, arm: str, points: Sequence[tuple[float, float, float, float]], colour: str
) -> None:
    x, mean, low, high = zip(*points, strict=True)
    figure.add_scatter(
        x=[*x, *x[::-1]],
        y=[*high, *low[::-1]],
        fill="toself",
        fillcolor=colour,
        opacity=0.1,
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=arm,
    )
    figure.add_scatter(
        x=x,
        y=mean,
        name=_plain(arm),
        mode="lines+markers",
        line={"color": colour},
        legendgroup=arm,
        hovertemplate=f"{_plain(arm)}: %{{y:.1%}} at %{{x:,.0f}}<extra></extra>",
    )


def _colour(one: Json) -> str:
    if not one.get("decided"):
        return SOFT
    return STUDENT if one["effect"] > 0 else TEACHER


def _plain(text: str) -> str:
    """Plotly reads markup and templates in its texts; labels of a foreign file may hold any."""
    return text.replace("<", "‹").replace("%", "％")
