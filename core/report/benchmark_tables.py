"""The tables of a benchmark, as text: the page, the summary and the terminal show the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.report.benchmark_data import BenchmarkReport
from core.report.data import Json

COSTS = {
    "optimizer_steps": "updates",
    "selected_tokens": "selected tokens",
    "generated_tokens": "generated tokens",
    "training_episodes": "training episodes",
}
"""Counts of ``results.json`` -> what a table calls them."""


@dataclass(frozen=True)
class Link:
    """A cell that leads somewhere beside the page."""

    text: str
    href: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """Rows under a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


def percent(value: float | None) -> str:
    """Return a share."""
    return "–" if value is None else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    if value is None:
        return "–"
    shown = f"{100 * value:+.1f}".replace("-", "−")
    return "0.0" if shown in ("+0.0", "−0.0") else shown


def interval(one: Json | None, name: str = "estimate") -> str:
    """Return an estimated share with its interval."""
    if one is None:
        return "–"
    return f"{percent(one[name])} [{100 * one['lower']:.1f}, {100 * one['upper']:.1f}]"


def effect(one: Json | None, name: str = "effect") -> str:
    """Return a difference with its interval, in percentage points."""
    if one is None or one.get(name) is None:
        return "–"
    return f"{points(one[name])} [{points(one['lower'])}, {points(one['upper'])}]"


def compared(report: BenchmarkReport, arm: str, measure: str = "success") -> Json | None:
    """Return the comparison of an arm with the baseline."""
    rows = report.comparison["comparisons"]
    wanted = (arm, report.document["baseline"], measure)
    return next(
        (one for one in rows if (one["arm"], one["against"], one.get("measure")) == wanted), None
    )


def success_table(report: BenchmarkReport) -> Table:
    """Return arms × seeds with intervals, and the difference to the baseline."""
    rates = {one["arm"]: one for one in report.comparison["rates"]}
    rows = []
    for arm in report.arms:
        own, found = rates.get(arm), compared(report, arm)
        rows.append(
            [
                arm,
                *(_solved(report.result(arm, seed)) for seed in report.seeds),
                interval(own["success"] if own else None),
                effect(found),
                _verdict(report, arm, found),
            ]
        )
    names = [f"seed {seed}" for seed in report.seeds]
    columns = ["arm", *names, "success", f"minus {report.document['baseline']}", "verdict"]
    confidence = report.comparison["confidence"]
    return Table(
        "Success",
        columns,
        rows,
        f"Share of {report.document['eval_split']} tasks solved; "
        f"{100 * confidence:.3g} % intervals; "
        f"differences in percentage points, paired by seed and task. {_scope(report)}",
    )


def recovery_table(report: BenchmarkReport) -> Table:
    """Return recovery after a tool error: over all episodes with one, and as mean of the seeds."""
    rows = []
    for one in report.comparison["rates"]:
        own = one["recovery"]
        if own is not None:
            found = compared(report, one["arm"], "recovery")
            mean = found.get("mean_of_seeds") if found else None
            rows.append(
                [
                    one["arm"],
                    own["pairs_with_errors"],
                    interval(own),
                    percent(own["mean_of_seeds"]),
                    effect(found),
                    effect(mean, "estimate"),
                    _verdict(report, one["arm"], found),
                ]
            )
    against = f"minus {report.document['baseline']}"
    columns = ["arm", "seeds × tasks with errors", "pooled", "mean of seeds", f"{against}, pooled"]
    return Table(
        "Recovery after a tool error",
        [*columns, f"{against}, mean of seeds", "verdict"],
        rows,
        "Share of those with an error that were solved after it. Differences are over pairs in "
        "which both arms met an error, so they need not be the difference of the rates.",
    )


def comparison_table(report: BenchmarkReport) -> Table:
    """Return every comparison with p value, wins, verdict and what would decide it."""
    rows = [
        [
            one["arm"],
            one["against"],
            one.get("measure", "–"),
            effect(one),
            "–" if one.get("p_value") is None else f"{one['p_value']:.3g}",
            _balance(one),
            one["verdict"],
            (one.get("advice") or {}).get("words", ""),
        ]
        for one in report.comparison["comparisons"]
    ]
    columns = ["arm", "against", "measure", "difference", "p", "wins / losses / ties"]
    control = report.comparison["error_control"]
    return Table("Comparisons", [*columns, "verdict", "what would decide it"], rows, f"{control}.")


def cost_table(report: BenchmarkReport) -> Table:
    """Return what an arm spent per seed after its cold start, and per held-out task solved."""
    rows = []
    for arm in report.arms:
        found = [one for seed in report.seeds if (one := report.result(arm, seed))]
        if not found:
            continue
        seconds = [
            value
            for seed in report.seeds
            if (value := report.cell(arm, seed).get("training_seconds")) is not None
        ]
        spent = {name: _mean([one[name] for one in found]) for name in COSTS}
        solved = _mean([one["tasks"] * (one["success_rate"] or 0.0) for one in found])
        time = _mean(seconds) if seconds else None
        per = [spent["selected_tokens"], spent["generated_tokens"], time]
        rows.append(
            [
                arm,
                *(_count(value) for value in spent.values()),
                _count(time, 1),
                f"{solved:.1f}",
                *(_per(value, solved) for value in per),
            ]
        )
    columns = ["arm", *COSTS.values(), "seconds", "tasks solved", "selected tokens per solved task"]
    return Table(
        "What it cost",
        [*columns, "generated tokens per solved task", "seconds per solved task"],
        rows,
        "After the cold start, mean over seeds. Seconds are wall seconds of sampling, scoring and "
        "training on the machine and under the load of the time; they decide nothing else here.",
    )


def failure_table(report: BenchmarkReport) -> Table:
    """Return how the held-out episodes of every arm ended, over all seeds."""
    names = sorted({name for each in report.failures.values() for name in each} - {"solved"})
    rows = []
    for arm, each in report.failures.items():
        total = sum(each.values())
        shown = [each.get(name, 0) for name in ("solved", *names)]
        rows.append([arm, *(f"{count} ({count / total:.0%})" if count else "" for count in shown)])
    note = "Held-out episodes of all seeds, by verdict and by what cut them off."
    return Table("How episodes ended", ["arm", "solved", *names], rows, note)


def _scope(report: BenchmarkReport) -> str:
    words = report.comparison["scope"]
    return f"{words[0].upper()}{words[1:]}."


def _solved(one: Json | None) -> str:
    if one is None:
        return "missing"
    return f"{one['solved']}/{one['episodes']} {percent(one['success_rate'])}"


def _verdict(report: BenchmarkReport, arm: str, found: Json | None) -> str:
    if arm == report.document["baseline"]:
        return "baseline"
    return found["verdict"] if found is not None else "–"


def _balance(one: Json) -> str:
    return f"{one['wins']} / {one['losses']} / {one['ties']}" if "wins" in one else "–"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _per(value: float | None, solved: float) -> str:
    return _count(value / solved, 2) if solved and value is not None else "–"


def _count(value: float | None, digits: int = 0) -> str:
    if value is None:
        return "–"
    return f"{value:,.{0 if float(value).is_integer() else max(digits, 1)}f}"
