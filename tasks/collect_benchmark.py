"""The result of a benchmark: all rows of all arms and seeds in one artifact."""

from typing import Any

from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.recipe.benchmark_specs import BenchmarkSpec
from tasks.caching import StepContext, step


@step(kind="benchmark", version="1")
def collect_benchmark(
    context: StepContext, spec: BenchmarkSpec, **arms: ArtifactRef
) -> dict[str, Any]:
    """Write ``results.json`` and the rows as JSONL, CSV and Parquet."""
    from core.evaluation.benchmark_results import write_results

    done = {
        (cell.arm, cell.seed): arm_result(context.store, arms[cell.role])
        for cell in spec.cells
        if cell.role is not None
    }
    document = write_results(context.out, spec, done)
    seconds = {
        f"{cell.arm} {cell.seed}": arm_seconds(context.store, arms[cell.role])
        for cell in spec.cells
        if cell.role is not None
    }
    return {
        "missing": len(document["missing"]),
        "identical": document["identical"],
        "seconds": seconds,
    }


def arm_result(store: Store, ref: ArtifactRef) -> Any:
    """Return what the artifact of an arm says, with the digests of its run's artifacts."""
    from core.evaluation.benchmark_results import read_arm

    parents = store.record(ref).parents
    digests = {"arm": ref.digest, **{role: one.digest for role, one in parents.items()}}
    return read_arm(store.path(ref), digests)


def arm_seconds(store: Store, ref: ArtifactRef) -> float:
    """Return the wall seconds of an arm's training after its cold start, whenever that was."""
    parents = store.record(ref).parents
    own = [one for role, one in parents.items() if role.startswith(OWN)]
    return round(sum(store.record(one).provenance.wall_time_s for one in own), 3)


OWN = ("rollouts_", "targets_", "student_", "dataset")
"""Roles of a run's artifacts that are the arm's training, neither cold start nor evaluation."""
