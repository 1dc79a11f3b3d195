"""The result of a benchmark: all rows of all arms and seeds in one artifact."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.artifacts.codec import write_json, write_jsonl
from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.recipe.benchmark_specs import BenchmarkSpec
from tasks.caching import StepContext, step


@step(kind="benchmark", version="4")
def collect_benchmark(
    context: StepContext, spec: BenchmarkSpec, **arms: ArtifactRef
) -> dict[str, Any]:
    """Write results, comparisons, rows as JSONL, CSV and Parquet, and some episodes."""
    from core.evaluation.benchmark_comparison import COMPARISON, compare_results
    from core.evaluation.benchmark_results import read_results, write_results

    done = {
        (cell.arm, cell.seed): arm_result(context.store, arms[cell.role])
        for cell in spec.cells
        if cell.role is not None
    }
    document = write_results(context.out, spec, done)
    write_json(context.out / COMPARISON, compare_results(read_results(context.out)))
    write_episodes(context.out, spec, done)
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


def write_episodes(out: Path, spec: BenchmarkSpec, done: Mapping[tuple[str, int], Any]) -> None:
    """Write ``episodes.jsonl``: the same tasks by every arm, on the first seed with results."""
    from core.evaluation.benchmark_episodes import EPISODES, shown_episodes
    from core.evaluation.benchmark_results import read_results

    seed = next((seed for seed in spec.seeds if any(one == seed for _, one in done)), None)
    files = {
        arm: one.episodes
        for (arm, own), one in done.items()
        if own == seed and one.episodes is not None
    }
    rows = read_results(out).rows
    shown = shown_episodes(files, rows, seed) if seed is not None else []
    write_jsonl(out / EPISODES, list(shown))


def arm_result(store: Store, ref: ArtifactRef) -> Any:
    """Return what the artifact of an arm says, and where the episodes behind it are."""
    from core.evaluation.benchmark_results import read_arm

    parents = store.record(ref).parents
    digests = {"arm": ref.digest, **{role: one.digest for role, one in parents.items()}}
    last = parents[max(role for role in parents if role.startswith("evaluation_"))]
    episodes = store.path(last) / "eval_trajectories.jsonl"
    return read_arm(store.path(ref), digests, episodes if episodes.exists() else None)


def arm_sources(store: Store, ref: ArtifactRef) -> list[dict[str, Any]]:
    """Return address and digest of what an arm's numbers come from, besides its own artifact."""
    parents = store.record(ref).parents
    numbered = ("evaluation_", "student_")
    last = [max((role for role in parents if role.startswith(one)), default="") for one in numbered]
    roles = [role for role in (*last, "cold_start", "dataset", "teacher") if role in parents]
    return [
        {
            "role": role,
            "address": parents[role].address,
            "digest": parents[role].digest,
        }
        for role in roles
    ]


def arm_seconds(store: Store, ref: ArtifactRef) -> float:
    """Return the wall seconds of an arm's training after its cold start, whenever that was."""
    parents = store.record(ref).parents
    own = [one for role, one in parents.items() if role.startswith(OWN)]
    return round(sum(store.record(one).provenance.wall_time_s for one in own), 3)


OWN = ("rollouts_", "targets_", "student_", "dataset")
"""Roles of a run's artifacts that are the arm's training, neither cold start nor evaluation."""
