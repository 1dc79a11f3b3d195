"""``opd cache``: what is kept of what teachers said, and whether it is whole. Needs no torch."""

from pathlib import Path
from typing import Annotated, Any

import typer

from core.errors import CacheCorruptionError
from flows.commands.document import print_json

app = typer.Typer(
    help="Teacher targets that every run of a store shares.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MIB = 1 << 20

StoreRoot = Annotated[
    Path | None, typer.Option("--store", help="Root of the store; that of recipes where none is.")
]
Directory = Annotated[
    Path | None, typer.Option("--dir", help="The cache itself, where cache.dir names it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def stats(store: StoreRoot = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Say how much is kept, of which teachers, and how often it was of use."""
    from core.teacher.cache_audit import stats as measure

    found = measure(_place(store, directory))
    if as_json:
        print_json(found)
    else:
        typer.echo(as_text(found))


@app.command()
def validate(store: StoreRoot = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Hash every file again; exit with 3 where one is not what it should be."""
    from core.teacher.cache_audit import validate as audit

    place = _place(store, directory)
    problems = audit(place)
    if as_json:
        print_json({"directory": place, "problems": problems})
    else:
        typer.echo("\n".join(problems) or f"{place}: every file is whole")
    if problems:
        raise typer.Exit(CacheCorruptionError.exit_code)


def _place(store: Path | None, directory: Path | None) -> Path:
    from core.recipe.runtime import Runtime
    from core.teacher.cache_index import directory_of

    return directory_of(store or Runtime().store, directory)


def as_text(found: dict[str, Any]) -> str:
    """Return the lines of ``opd cache stats``."""
    rows = [_row(row) for row in found["scopes"]]
    return "\n".join([found["directory"], f"all        {_amount(found)}", *rows])


def _row(row: dict[str, Any]) -> str:
    if row["teacher_digest"] is None:
        return f"{row['scope'][:8]}   {_amount(row)}\n           pruned"
    kept = f"top {row['top_k']}" if row["top_k"] is not None else row["mode"]
    at = f" at temperature {row['temperature']}" if row["temperature"] is not None else ""
    return (
        f"{row['scope'][:8]}   {_amount(row)}\n"
        f"           teacher {row['teacher_digest'][:16]}, {kept}{at}, {row['dtype']} on "
        f"{row['device']}, {row['threads']} threads"
    )


def _amount(row: dict[str, Any]) -> str:
    ratio = f"1/{row['compression']:.0f}" if row["compression"] else "–"
    rate = f"{row['hit_rate']:.1%}" if row["hit_rate"] is not None else "–"
    return (
        f"{row['positions']} positions of {row['entries']} episodes in {row['shards']} files, "
        f"{row['bytes'] / MIB:.2f} MiB ({ratio} of whole 16-bit distributions); "
        f"{row['hits']} served, {row['misses']} computed, {rate} hits"
    )
