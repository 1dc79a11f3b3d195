"""Plotly figures of a run, as HTML fragments without the library (the page inlines it once)."""

from collections.abc import Sequence

import plotly.graph_objects as go

from core.report.data import CyclePoint, EvaluationPoint, Json

INK, SOFT, STUDENT, TEACHER = "#1f2933", "#9aa5b1", "#2563eb", "#d97706"


def blank(title: str, x: str, y: str) -> go.Figure:
    """Return a figure without data, in the page's style."""
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        template="simple_white",
        height=300,
        margin={"l": 60, "r": 16, "t": 44, "b": 44},
        font={"family": "system-ui, sans-serif", "size": 12, "color": INK},
        legend={"orientation": "h", "y": 1.12, "x": 1, "xanchor": "right"},
    )
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y)
    return figure


def fragment(figure: go.Figure, name: str) -> str:
    """Return a ``<div>`` that needs plotly.js to be on the page already.

    The name is its id: plotly would draw a random one, and equal data must give equal bytes.
    """
    return figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        config={"displaylogo": False, "responsive": True},
    )


def success_figure(
    evaluations: Sequence[EvaluationPoint], cycles: Sequence[CyclePoint]
) -> go.Figure:
    """Held-out success with Wilson's 95 % interval, over the success of the training rollouts."""
    figure = blank("Success", "cycles done", "share solved")
    rollouts = [(c.cycle + 1, c.rollouts.get("success_rate")) for c in cycles]
    figure.add_scatter(
        x=[x for x, _ in rollouts],
        y=[y for _, y in rollouts],
        name="training rollouts",
        mode="lines",
        line={"color": SOFT, "width": 1},
    )
    points = [p for p in evaluations if p.stats.get("success_rate") is not None]
    rates = [p.stats["success_rate"] for p in points]
    figure.add_scatter(
        x=[p.cycle for p in points],
        y=rates,
        name="held out (95 % interval)",
        text=[p.stage for p in points],
        hovertemplate="%{text}: %{y:.1%}<extra></extra>",
        mode="lines+markers",
        line={"color": STUDENT},
        error_y={
            "type": "data",
            "symmetric": False,
            "color": STUDENT,
            "thickness": 1,
            "array": [
                p.stats["success_interval"][1] - r for p, r in zip(points, rates, strict=True)
            ],
            "arrayminus": [
                r - p.stats["success_interval"][0] for p, r in zip(points, rates, strict=True)
            ],
        },
    )
    figure.update_yaxes(range=[-0.02, 1.02], tickformat=".0%")
    return figure


def _series(cycles: Sequence[CyclePoint], name: str) -> tuple[list[float], list[float]]:
    pairs = [
        (cycle.cycle + 1, row[name])
        for cycle in cycles
        for row in cycle.steps
        if row.get(name) is not None
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def objective_figure(cycles: Sequence[CyclePoint]) -> go.Figure:
    """Loss and teacher entropy of the optimizer steps, in nats per selected token."""
    figure = blank("Objective", "cycles done", "nats per selected token")
    for name, label, colour in (
        ("loss", "loss", STUDENT),
        ("teacher_entropy_mean", "teacher entropy", TEACHER),
    ):
        x, y = _series(cycles, name)
        figure.add_scatter(x=x, y=y, name=label, mode="lines", line={"color": colour})
    return figure


def reference_figure(cycles: Sequence[CyclePoint]) -> go.Figure | None:
    """Divergence from the frozen reference before each step; None where there is none."""
    x, y = _series(cycles, "reference_kl_mean")
    if not x:
        return None
    figure = blank("KL(student ‖ reference)", "cycles done", "nats per selected token")
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": STUDENT}, showlegend=False)
    figure.update_yaxes(rangemode="tozero")
    return figure


def gradient_figure(cycles: Sequence[CyclePoint]) -> go.Figure:
    """Global gradient norm before clipping."""
    figure = blank("Gradient norm", "cycles done", "before clipping")
    x, y = _series(cycles, "grad_norm")
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": STUDENT}, showlegend=False)
    return figure


DIAGNOSTICS = {
    "student_mass": ("student's mass on the support", STUDENT),
    "teacher_mass": ("teacher's mass on the support", TEACHER),
    "undecided": ("positions where the teacher is undecided", INK),
    "clamped": ("positions whose gradient verl's clamp loses", "#b91c1c"),
    "is_clipped": ("positions that the surrogate clips", SOFT),
}
"""What objectives report per position and what is a share of them; the others are no shares."""


def diagnostics_figure(cycles: Sequence[CyclePoint]) -> go.Figure:
    """Shares that tell of the signal's health: positions queried, masses, gates, clamps."""
    figure = blank("Signal", "cycles done", "share")
    for label, points in diagnostic_series(cycles).items():
        colour = next((c for text, c in DIAGNOSTICS.values() if text == label), "#15803d")
        x, y = zip(*points, strict=True)
        figure.add_scatter(x=x, y=y, name=label, mode="lines", line={"color": colour})
    figure.update_yaxes(range=[-0.02, 1.02], tickformat=".0%")
    figure.update_layout(legend={"y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"})
    figure.update_layout(height=380)
    return figure


def diagnostic_series(cycles: Sequence[CyclePoint]) -> dict[str, list[tuple[int, float]]]:
    """Return, by label, the cycles done and the share; labels without a point are absent."""
    series: dict[str, list[tuple[int, float]]] = {}
    for cycle in cycles:
        shares = {"positions queried": cycle.selection.get("teacher_queried_position_ratio")}
        if cycle.selection.get("model_bytes"):
            unaligned = cycle.selection["unaligned_bytes"] / cycle.selection["model_bytes"]
            shares["bytes without a target"] = unaligned
        for row in cycle.steps[-1:]:
            found = row.get("objective_diagnostics", {})
            shares |= {label: found.get(name) for name, (label, _) in DIAGNOSTICS.items()}
        for label, value in shares.items():
            if value is not None:
                series.setdefault(label, []).append((cycle.cycle + 1, value))
    return series


def collapse_figure(cycles: Sequence[CyclePoint]) -> go.Figure:
    """Entropy of what the student samples: where it falls to 0 the student says always the same."""
    figure = blank("Student's entropy", "cycles done", "nats per sampled token")
    points = [(c.cycle + 1, c.rollouts.get("sampled_entropy")) for c in cycles]
    figure.add_scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="lines",
        line={"color": STUDENT},
        showlegend=False,
    )
    figure.update_yaxes(rangemode="tozero")
    return figure


def cold_start_figure(steps: Sequence[Json]) -> go.Figure:
    """Cross-entropy of the cold start on oracle traces."""
    figure = blank("Cold start", "optimizer steps", "nats per token")
    figure.add_scatter(
        x=[row.get("step", i) for i, row in enumerate(steps)],
        y=[row.get("loss") for row in steps],
        mode="lines",
        line={"color": TEACHER},
        showlegend=False,
    )
    return figure


def seconds_figure(cycles: Sequence[CyclePoint]) -> go.Figure:
    """Wall seconds of each cycle by step."""
    figure = blank("Time per cycle", "cycle", "seconds")
    for name, colour in (("sample", STUDENT), ("score", TEACHER), ("update", INK)):
        figure.add_bar(
            x=[c.cycle + 1 for c in cycles],
            y=[c.seconds.get(name, 0.0) for c in cycles],
            name=name,
            marker={"color": colour},
        )
    figure.update_layout(barmode="stack", bargap=0.15)
    return figure


def figures(
    evaluations: Sequence[EvaluationPoint],
    cycles: Sequence[CyclePoint],
    cold_start_steps: Sequence[Json],
) -> list[str]:
    """Return the fragments of every figure that has data."""
    made = [success_figure(evaluations, cycles)]
    if cycles:
        compared = reference_figure(cycles)
        made += [
            objective_figure(cycles),
            gradient_figure(cycles),
            collapse_figure(cycles),
            *([] if compared is None else [compared]),
            diagnostics_figure(cycles),
            seconds_figure(cycles),
        ]
    if cold_start_steps:
        made.append(cold_start_figure(cold_start_steps))
    return [fragment(figure, f"figure-{number}") for number, figure in enumerate(made)]
