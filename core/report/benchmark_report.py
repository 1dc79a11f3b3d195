"""Page and summary of a benchmark, written beside its tables."""

from pathlib import Path

from core.artifacts.filesystem import replace_file
from core.report.benchmark_data import BenchmarkReport, benchmark_report
from core.report.benchmark_markdown import benchmark_summary
from core.report.benchmark_page import render_benchmark
from core.runs.layout import REPORT, SUMMARY


def write_benchmark_report(directory: Path) -> BenchmarkReport:
    """Make page and summary from the files of a benchmark's directory, and return what they show.

    Raises:
        StoreError: A file is missing or damaged.
        ReportError: The files are of an older version.
    """
    report = benchmark_report(directory)
    replace_file(directory / REPORT, [render_benchmark(report).encode()])
    replace_file(directory / SUMMARY, [benchmark_summary(report).encode()])
    return report
