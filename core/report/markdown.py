"""The report as Markdown: the same numbers as the page, for a terminal or a pull request."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from core.report.data import ReportData, headline
from core.report.signals import canary_rows, signal_rows

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|&~!])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def summary(data: ReportData) -> str:
    """Return the summary of a run; nothing that a model or a recipe says is markup in it."""
    blocks = [
        f"# {plain(data.title)}",
        f"{plain(data.objective)}; seed {data.seed}",
        _held_out(data),
        _cycles(data),
        _section("Signal of the last cycle", ("what", "value", "meaning"), _signals(data)),
        _section("Canaries", ("what", "found", "sound where"), _canaries(data)),
        _section("Where the numbers come from", ("step", "artifact", "digest"), _sources(data)),
        _section("Software and hardware", ("what", "value"), data.provenance.items()),
        "Intervals are Wilson's, 95 %, over tasks, for this one seed. Everything is in nats.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def plain(value: Any) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", _CONTROL.sub(" ", str(value)))


def _held_out(data: ReportData) -> str:
    rows = [
        (
            point.stage,
            f"{point.stats['solved']} of {point.stats['rollouts']}",
            _percent(point.stats["success_rate"]),
            _interval(point.stats.get("success_interval")),
        )
        for point in headline(data.evaluations)
    ]
    return _section("Held-out success", ("stage", "solved", "rate", "95 % interval"), rows)


def _cycles(data: ReportData) -> str:
    names = ("cycle", "solved", "tokens", "loss (nats)", "gradient norm")
    rows = []
    for cycle in data.cycles:
        step = cycle.steps[-1] if cycle.steps else {}
        solved = f"{cycle.rollouts['solved']} of {cycle.rollouts['rollouts']}"
        tokens = cycle.rollouts["generated_tokens"]
        numbers = [_number(step.get(name)) for name in ("loss", "grad_norm")]
        rows.append((cycle.cycle + 1, solved, tokens, *numbers))
    return _section("Cycles", names, rows)


def _signals(data: ReportData) -> list[tuple[Any, ...]]:
    return [(row["name"], _number(row["value"]), row["meaning"]) for row in signal_rows(data)]


def _canaries(data: ReportData) -> list[tuple[Any, ...]]:
    found = canary_rows(data.canaries)
    return [(row["name"], _number(row["value"]), row["sound"]) for row in found]


def _sources(data: ReportData) -> list[tuple[Any, ...]]:
    return [(row.step, f"{row.name}-{row.key}", row.digest[:16]) for row in data.artifacts]


def _section(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows]
    if not lines:
        return ""
    head = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return "\n".join([f"## {title}", "", *head, *lines])


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _interval(bounds: Sequence[float] | None) -> str:
    return "–" if bounds is None else f"{_percent(bounds[0])} to {_percent(bounds[1])}"


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
