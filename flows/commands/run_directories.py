"""``opd inspect``, ``opd report`` and ``opd export-run``: what works on a run directory alone.

None of them needs torch, a server or the store.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.document import print_json

if TYPE_CHECKING:
    from core.report.data import ReportData

Run = Annotated[Path, typer.Argument(metavar="RUN", help="e.g. runs/toy-seed1234")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def inspect(
    run: Run,
    episode: Annotated[
        str | None, typer.Option("--episode", help="Show this one token by token.")
    ] = None,
    episodes: Annotated[bool, typer.Option("--episodes", help="List the episodes, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show whose tokens a run trained on, or one episode token by token."""
    from flows.commands.inspection import inspect as look
    from flows.commands.inspection import print_inspection

    found = look(run, episode, episodes=episodes)
    if as_json:
        print_json(found)
    else:
        print_inspection(found)


def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write; the run's own where none is.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the summary in Markdown.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as one JSON document.")
    ] = False,
) -> None:
    """Make the report of a run or a benchmark again, from the files of its directory alone."""
    from core.report.benchmark_data import is_benchmark_directory
    from core.report.markdown import summary
    from core.report.run_report import run_report
    from core.runs.reading import open_run

    if is_benchmark_directory(run):
        _report_benchmark(run, out, markdown=markdown, as_json=as_json)
        return
    data = run_report(open_run(run))
    if as_json:
        print_json(data.model_dump(mode="json"))
    elif markdown:
        print(summary(data), end="")
    else:
        print("\n".join(map(str, _remake(run, data, out))))


def _report_benchmark(run: Path, out: Path | None, *, markdown: bool, as_json: bool) -> None:
    from core.artifacts.filesystem import replace_file
    from core.report.benchmark_data import benchmark_report
    from core.report.benchmark_markdown import benchmark_summary
    from core.report.benchmark_page import render_benchmark
    from core.report.benchmark_report import write_benchmark_report
    from core.runs.layout import REPORT, SUMMARY

    if as_json:
        print_json(benchmark_report(run).model_dump(mode="json"))
    elif markdown:
        print(benchmark_summary(benchmark_report(run)), end="")
    elif out is not None:
        replace_file(out, [render_benchmark(benchmark_report(run)).encode()])
        print(out)
    else:
        write_benchmark_report(run)
        print("\n".join(str(run / name) for name in (REPORT, SUMMARY)))


def export_run(
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="A .zip, .tar, .tar.gz or .tgz to make.")],
    as_json: AsJson = False,
) -> None:
    """Pack a run into one archive to share: redacted, with the digest of every file."""
    from core.runs.archive import export_run as export
    from core.runs.reading import open_run

    manifest = export(open_run(run), out)
    told = {"archive": str(out), "files": len(manifest.files), **(manifest.exported or {})}
    if as_json:
        print_json(told)
        return
    print(f"{out}: {told['files']} files")
    for name in told["redacted"]:
        print(f"  redacted   {name}")
    for name, why in told["left_out"].items():
        print(f"  left out   {name}: {why}")


def _remake(run: Path, data: "ReportData", out: Path | None) -> list[Path]:
    """Write the page to ``out``, or page and summary where the run has its own."""
    from core.report.markdown import summary
    from core.report.page import render, write
    from core.runs.layout import REPORT, SUMMARY
    from core.runs.placing import refresh

    if out is not None:
        write(data, out)
        return [out]
    made = {REPORT: render(data).encode(), SUMMARY: summary(data).encode()}
    refresh(run, made)
    return [run / name for name in made]
