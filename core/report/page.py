"""The report: one HTML file that opens offline, with plotly inlined and every text escaped."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from core.artifacts.filesystem import replace_file
from core.report.data import ReportData, ShownEpisode, TokenNote, headline
from core.report.figures import figures
from core.report.signals import canary_rows, signal_rows
from core.trajectory.spans import Span

SATURATION_NATS = 4.0
"""Divergence at which a token's background is fully coloured."""


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _tooltip(note: TokenNote) -> str:
    lines = [f"position {note.position} · weight {note.weight:g}"]
    for label, value in (
        ("divergence", note.divergence_nats),
        ("−log p(student)", note.nll_nats),
        ("teacher entropy", note.teacher_entropy_nats),
    ):
        if value is not None:
            lines.append(f"{label} {value:.4f} nats")
    for label, token in (("teacher", note.teacher_top), ("student", note.student_top)):
        if token is not None:
            lines.append(f"{label} prefers {token!r}")
    return "\n".join(lines)


def _heat(note: TokenNote) -> str:
    value = note.divergence_nats if note.divergence_nats is not None else note.nll_nats
    return f"{min(max(value or 0.0, 0.0) / SATURATION_NATS, 1.0):.3f}"


def _tokens(span: Span, notes: dict[int, TokenNote]) -> list[dict[str, str]]:
    return [
        {
            "text": note.piece,
            "tip": _tooltip(note),
            "heat": _heat(note),
        }
        for position in range(span.start, span.end)
        if (note := notes.get(position)) is not None
    ]


def episode_view(episode: ShownEpisode) -> dict[str, Any]:
    """Return what the template needs of one episode: its spans, coloured where trained."""
    notes = {note.position: note for note in episode.notes}
    row = episode.trajectory
    return {
        "id": row.trajectory_id,
        "solved": row.solved,
        "reason": row.termination_reason.value,
        "expected": row.verification.expected,
        "predicted": row.verification.predicted,
        "spans": [
            {
                "type": span.span_type.value,
                "model": span.is_model,
                "text": span.text,
                "tokens": _tokens(span, notes) if span.is_model else [],
            }
            for span in row.spans
        ],
    }


def template_environment() -> Environment:
    """Return where templates come from; whatever they are given is escaped."""
    environment = Environment(
        loader=PackageLoader("core.report", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=_percent, number=_number)
    return environment


def render(data: ReportData) -> str:
    """Return the whole page as one string."""
    template = template_environment().get_template("page.html.j2")
    return template.render(
        data=data,
        headline=headline(data.evaluations),
        # The two marked parts are ours, not a model's: the library and the figures, whose labels
        # plotly serialises as JSON.
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script")),
        figures=[
            Markup(one) for one in figures(data.evaluations, data.cycles, data.cold_start_steps)
        ],
        episodes=[episode_view(one) for one in data.episodes],
        canaries=canary_rows(data.canaries),
        signals=signal_rows(data),
    )


def write(data: ReportData, path: Path) -> None:
    """Write the page to ``path``."""
    # Replaced, never written into: the old page may be a hard link to an artifact's.
    replace_file(path, [render(data).encode()])
