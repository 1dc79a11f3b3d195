"""What a command prints for programs: JSON whose keys are sorted."""

import json

import typer


def print_json(document: object) -> None:
    """Print a document; what JSON does not know, such as a path, is printed as its text."""
    typer.echo(json.dumps(document, indent=2, sort_keys=True, default=str))
