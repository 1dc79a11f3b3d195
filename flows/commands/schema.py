"""``opd schema``: what an editor must know to complete and check a recipe."""

from typing import Annotated

import typer

from flows.commands.document import print_json


def schema(
    of_benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Of a benchmark instead of a recipe.")
    ] = False,
) -> None:
    """Print the JSON Schema of a recipe, for editors."""
    from core.recipe.benchmark import Benchmark
    from core.recipe.editor_schema import json_schema

    found = Benchmark.model_json_schema() if of_benchmark else json_schema()
    print_json(found)
