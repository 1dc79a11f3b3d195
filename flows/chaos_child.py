"""One attempt of ``opd chaos``: a run in a process of its own, with a fault at the disk's seam.

``python -m flows.chaos_child FAULT RECIPE [KEY=VALUE]…``, where FAULT is a JSON object. It is
``opd run``, or its steps alone, and ends like it.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.artifacts.faults import Fault, install
from core.artifacts.record import ArtifactRef
from core.errors import OpdError
from flows.cli import main as opd


def run_directly(path: Path, overrides: Sequence[str]) -> None:
    """Run a recipe's steps without Prefect, which takes seconds less.

    Raises:
        OpdError: Whatever went wrong.
    """
    from core.recipe.loading import load
    from flows.graphs.run import run_graph, stop_reason
    from flows.runs.sources import locate, open_plugins
    from tasks.caching import Step, open_store

    loaded = load(path, overrides)
    open_plugins(loaded.recipe, loaded.runtime)
    recipe, runtime = locate(loaded.recipe, loaded.runtime)
    store = open_store(runtime.store)

    def call(step: Step, spec: Any, *, name: str, **parents: ArtifactRef) -> ArtifactRef:
        return step.prepare(spec, runtime=runtime, name=name, **parents).run()

    run_graph(recipe, call, lambda student: stop_reason(student, store))


def _direct(path: Path, overrides: Sequence[str]) -> None:
    try:
        run_directly(path, overrides)
    except OpdError as error:
        sys.stderr.write(f"error: {error.message}\n")
        sys.exit(error.exit_code)


def main(words: Sequence[str]) -> None:
    """Run with a fault in place, and note how many operations there were."""
    options = json.loads(words[0])
    fault = Fault(options["kind"], options["at"], options["seed"])
    install(fault)
    try:
        if options["direct"]:
            _direct(Path(words[1]), words[2:])
        else:
            sys.argv = ["opd", "run", *words[1:], "--json"]
            opd()
    finally:
        Path(options["count"]).write_text(str(fault.seen), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
