"""The report of a benchmark as Markdown: the same tables as the page."""

from core.report.benchmark_data import BenchmarkReport
from core.report.benchmark_facts import (
    arm_table,
    budget_table,
    equal_table,
    published_tables,
    source_table,
)
from core.report.benchmark_tables import (
    Table,
    comparison_table,
    cost_table,
    failure_table,
    recovery_table,
    success_table,
)
from core.report.markdown import plain


def benchmark_summary(report: BenchmarkReport, *, sources: bool = True) -> str:
    """Return the summary of a benchmark; nothing that a recipe or a model says is markup in it.

    Args:
        report: What is shown.
        sources: Name the artifacts behind every arm and seed, too.
    """
    document = report.document
    tables = [
        success_table(report),
        recovery_table(report),
        *published_tables(report),
        comparison_table(report),
        cost_table(report),
        equal_table(report),
        budget_table(report),
        failure_table(report),
        arm_table(report),
        *([source_table(report)] if sources else []),
    ]
    missing = [f"{one['arm']} on seed {one['seed']}" for one in document["missing"]]
    blocks = [
        f"# {plain(document['name'])}",
        plain(document["description"]),
        f"Missing: {plain(', '.join(missing))}." if missing else "",
        *(f"Equal byte for byte: {plain(', '.join(each))}." for each in document["identical"]),
        *(_block(table) for table in tables if table.rows),
        f"Digest `{document['digest']}`.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _block(table: Table) -> str:
    lines = [
        f"## {plain(table.title)}",
        "",
        *([plain(table.note), ""] if table.note else []),
        f"| {' | '.join(plain(name) for name in table.columns)} |",
        f"|{'---|' * len(table.columns)}",
    ]
    lines += [f"| {' | '.join(plain(cell) for cell in row)} |" for row in table.rows]
    return "\n".join(lines)
