"""The report of a benchmark: one HTML file that opens offline, with every text escaped."""

from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from core.report.benchmark_data import BenchmarkReport
from core.report.benchmark_facts import (
    arm_table,
    budget_table,
    equal_table,
    published_tables,
    source_table,
)
from core.report.benchmark_figures import benchmark_figures
from core.report.benchmark_tables import (
    Table,
    comparison_table,
    cost_table,
    failure_table,
    recovery_table,
    success_table,
)
from core.report.page import template_environment


def render_benchmark(report: BenchmarkReport) -> str:
    """Return the whole page as one string."""
    template = template_environment().get_template("benchmark.html.j2")
    return template.render(
        report=report,
        document=report.document,
        # The library and the figures are ours; plotly serialises their labels as JSON.
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script")),
        figures=[Markup(one) for one in benchmark_figures(report)],
        answers=_shown([success_table(report), recovery_table(report), *published_tables(report)]),
        comparisons=_shown([comparison_table(report)]),
        details=_shown(
            [
                cost_table(report),
                equal_table(report),
                budget_table(report),
                failure_table(report),
                arm_table(report),
            ]
        ),
        sources=_shown([source_table(report)]),
        tasks=_tasks(report),
        left=_counterparts(report)[0],
        right=_counterparts(report)[1],
    )


def _shown(tables: list[Table]) -> list[Table]:
    return [table for table in tables if table.rows]


def _tasks(report: BenchmarkReport) -> list[dict[str, Any]]:
    """Return the episodes by task, in the order of the arms."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for row in report.episodes:
        tasks.setdefault(row["task_id"], []).append(row)
    return [
        {"id": task, "seed": rows[0]["seed"], "episodes": rows, "solved": _solvers(rows)}
        for task, rows in tasks.items()
    ]


def _solvers(rows: list[dict[str, Any]]) -> str:
    names = [row["arm"] for row in rows if row["solved"]]
    return f"solved by {len(names)} of {len(rows)}"


def _counterparts(report: BenchmarkReport) -> tuple[str, str]:
    """Return the arms shown first: fresh states against frozen ones, or against the baseline."""
    states = {one["name"]: one["states"] for one in report.document["arms"]}
    shown = {row["arm"] for row in report.episodes}
    wanted = [
        name for state in ("fresh", "frozen student") for name in _first(states, shown, state)
    ]
    rest = [name for name in (report.document["baseline"], *report.arms) if name in shown]
    left, right, *_ = [*dict.fromkeys([*wanted, *rest]), "", ""]
    return left, right


def _first(states: dict[str, str], shown: set[str], state: str) -> list[str]:
    return [name for name, own in states.items() if own == state and name in shown][:1]
