"""``opd chaos``: what the command line says of it."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.document import print_json


def chaos(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A small YAML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="e.g. train.cycles=2")
    ] = None,
    kills: Annotated[int, typer.Option(help="Attempts that are disturbed.")] = 20,
    seed: Annotated[int, typer.Option(help="Chooses the disturbances.")] = 0,
    direct: Annotated[
        bool, typer.Option("--direct", help="Run the steps without Prefect, which is faster.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Kill a recipe's run at random instants, damage its files, and compare what it ends in."""
    from flows.chaos.trial import chaos as disturb
    from flows.chaos.trial import check, lines

    found = disturb(recipe, overrides or [], kills=kills, seed=seed, direct=direct)
    if as_json:
        print_json(found.as_document())
    else:
        typer.echo("\n".join(lines(found)))
    check(found)
