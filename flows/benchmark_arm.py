"""The flow ``benchmark-arm``: one arm on one seed, or what the arms of a seed share."""

from typing import Any, Literal

from prefect import flow

from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.runs.configs import Submission
from core.runs.recorder import recorded
from flows.graphs.arm import arm_graph, shared_graph
from flows.graphs.gate import gate_of
from flows.graphs.refs import RunRefs
from flows.graphs.run import num_steps, stop_reason
from flows.opd_cycle import DEFAULT_RECIPE, StepCaller, checked, run_name
from flows.runs.sources import locate
from tasks.caching import open_store

Part = Literal["arm", "shared"]


@flow(name="benchmark-arm", flow_run_name=run_name, validate_parameters=True)
def benchmark_arm(
    recipe: Recipe | None = None,
    runtime: Runtime | None = None,
    cold: Recipe | None = None,
    part: Part = "arm",
    recipe_path: str = DEFAULT_RECIPE,
    overrides: list[str] | None = None,
) -> dict[str, Any]:
    """Run one arm of a benchmark on one seed as cached steps. It never waits for another run.

    Args:
        recipe: What to compute; where it is missing, ``recipe_path`` is loaded.
        runtime: Where and how; never part of a result's identity.
        cold: Recipe whose cold start it begins from; where it is missing, its own.
        part: The whole arm, or what all arms of its seed share: tasks, teacher, cold start.
        recipe_path: A YAML file, relative to the directory of the deployment.
        overrides: ``key=value`` changes to that file.

    Raises:
        RecipeError: The recipe is refused.
        QualificationError: The recipe asks for a gate, and its teacher does not pass.
    """
    recipe, runtime = locate(*checked(recipe, runtime, recipe_path, overrides or []))
    store = open_store(runtime.store)
    if part == "shared":
        caller = StepCaller(runtime, num_steps(recipe))
        gate = gate_of(recipe, runtime, store)
        shared_graph(recipe, caller, lambda student: stop_reason(student, store), gate)
        caller.finish()
        return {"seed": recipe.run.seed, "part": part, "computed": caller.computed}
    return _run_arm(recipe, runtime, cold)


def _run_arm(recipe: Recipe, runtime: Runtime, cold: Recipe | None) -> dict[str, Any]:
    store, run = open_store(runtime.store), RunRefs()
    with recorded(store, recipe, runtime, Submission(recipe, runtime)) as record:
        record.so_far = run.artifacts
        record.start()
        caller = StepCaller(runtime, num_steps(recipe) + 1, record)
        gate = gate_of(recipe, runtime, store)
        done = arm_graph(
            recipe, caller, lambda student: stop_reason(student, store), gate, cold, run
        )
        caller.finish()
        record.complete(run.artifacts(), run.stopped)
    return {
        "seed": recipe.run.seed,
        "part": "arm",
        "result": done.result.model_dump(),
        "computed": caller.computed,
    }
