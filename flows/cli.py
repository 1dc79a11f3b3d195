"""The ``opd`` command. It parses, calls, and prints; heavy imports wait until they are needed."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from core.errors import InterruptedRunError, OpdError
from flows.commands.audit import diff, doctor, gc, verify
from flows.commands.benchmark import benchmark
from flows.commands.cache import app as cache
from flows.commands.chaos import chaos
from flows.commands.document import print_json
from flows.commands.environments import app as environments
from flows.commands.models import (
    compare_teacher,
    export_adapter,
    import_gguf,
    qualify_teacher,
    sample,
)
from flows.commands.run_directories import export_run, inspect, report
from flows.commands.schema import schema
from flows.runs.last_error import LAST_ERROR, keep_tracebacks

app = typer.Typer(
    name="opd",
    help="On-policy distillation experiments as a cached DAG on one GPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
MODELS = (qualify_teacher, compare_teacher, export_adapter, import_gguf, sample)
for command in (inspect, report, export_run, verify, diff, gc, doctor, *MODELS):
    app.command(command.__name__.replace("_", "-"))(command)
app.add_typer(environments, name="env")
app.add_typer(cache, name="cache")
app.command()(benchmark)
app.command()(chaos)
app.command()(schema)

INTERRUPTED = InterruptedRunError.exit_code

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML file in recipes/.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="e.g. train.cycles=8")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def run(
    recipe: RecipePath,
    overrides: Overrides = None,
    as_json: AsJson = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask the Hub for nothing: runtime.offline=true.")
    ] = False,
    origin: Annotated[
        str, typer.Option("--from", metavar="RUN@CYCLE", help="Go on from a student of that run.")
    ] = "",
) -> None:
    """Run a recipe in this process; what was computed before is not computed again."""
    from flows.commands.run_recipe import run_recipe
    from flows.runs.fork import fork_overrides

    words = [*(fork_overrides(origin) if origin else []), *(overrides or [])]
    words += ["runtime.offline=true"] if offline else []
    try:
        summary = run_recipe(recipe, words, quiet=as_json)
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted", "The same command goes on from here.") from None
    if as_json:
        print_json(summary)


@app.command()
def plan(
    recipe: RecipePath,
    overrides: Overrides = None,
    as_json: AsJson = False,
    strict_code: Annotated[
        bool, typer.Option("--strict-code", help="Treat changed code as a miss.")
    ] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Predict peaks instead.")] = False,
) -> None:
    """Say what a run or a benchmark would compute, and why, without running anything."""
    if memory:
        from flows.runs.memory import memory_text

        print(memory_text(recipe, overrides or [], as_json=as_json))
        return
    from flows.benchmarks.plan import grid_text
    from flows.runs.plan import plan_recipe, print_plan

    words = [*(overrides or []), *(["runtime.strict_code=true"] if strict_code else [])]
    if shown := grid_text(recipe, words, as_json=as_json):
        print(shown)
        return
    planned = plan_recipe(recipe, words)
    if as_json:
        print_json(planned.as_document())
    else:
        print_plan(planned)


@app.command()
def up(
    port: Annotated[
        int | None, typer.Option(help="Port of server and UI; 4200 where none is given.")
    ] = None,
    arms: Annotated[
        int | None, typer.Option(help="Flow runs that the pool gpu takes at once; 1 if not given.")
    ] = None,
) -> None:
    """Start the server, its pools and workers, and deploy the flows."""
    from flows.server.stack import up as start

    print(start(port=port, arms=arms))


@app.command()
def down() -> None:
    """Stop everything that ``opd up`` started."""
    from flows.server.stack import down as stop

    print(stop())


@app.command()
def status(as_json: AsJson = False) -> None:
    """Say what ``opd up`` has running."""
    from flows.server.stack import status as look

    found = look()
    if as_json:
        print_json(found.as_document())
    else:
        print(found)


@app.command()
def recipes() -> None:
    """List the recipes at hand."""
    from flows.commands.recipes import list_recipes

    print(list_recipes(Path("recipes")))


def _die_on_second_interrupt() -> None:
    """The first Ctrl-C ends the step cleanly; the second ends the process at once.

    Nothing can be half-written either way: an artifact exists only after its one rename.
    """
    first: Callable[..., Any] = signal.default_int_handler

    def handler(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        print("\nstopping; press Ctrl-C again to stop at once", file=sys.stderr)
        first(number, frame)

    signal.signal(signal.SIGINT, handler)


def _complain(what: str, remedy: str) -> None:
    print(f"error: {what}", file=sys.stderr)
    print(f"  fix: {remedy}", file=sys.stderr)


def _record_fault(error: Exception) -> None:
    """Keep the traceback for a bug report, out of the user's way."""
    keep_tracebacks([error])
    _complain(
        f"{type(error).__name__}: {error}".splitlines()[0],
        f"This is a fault of opdflow, not yours; details are in {LAST_ERROR}. "
        "Finished steps are kept: the same command resumes.",
    )


def main() -> None:
    """Run the command line and exit with 0, 2 (bad input), 3 (a step failed) or 130."""
    _die_on_second_interrupt()
    try:
        app(standalone_mode=True)
    except OpdError as error:
        _complain(error.message, error.hint)
        sys.exit(error.exit_code)
    except Exception as error:
        _record_fault(error)
        sys.exit(3)


if __name__ == "__main__":
    main()
