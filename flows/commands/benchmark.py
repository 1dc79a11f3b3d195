"""``opd benchmark``, as the command line has it."""

from pathlib import Path
from typing import Annotated

import typer

from core.errors import InterruptedRunError
from flows.commands.document import print_json


def benchmark(
    recipe: Annotated[Path, typer.Argument(metavar="BENCHMARK", help="In recipes/benchmarks/.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="e.g. seeds=[1,2]")
    ] = None,
    deployments: Annotated[
        bool, typer.Option("--deployments", help="One run per arm and seed, through `opd up`.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare arms on seeds; what was computed before is not computed again."""
    from flows.commands.run_benchmark import run_benchmark

    mode = "deployments" if deployments else "inline"
    try:
        summary = run_benchmark(recipe, overrides or [], mode=mode, quiet=as_json)
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted", "The same command goes on from here.") from None
    if as_json:
        print_json(summary)
