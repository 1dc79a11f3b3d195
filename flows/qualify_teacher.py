"""The flow ``qualify-teacher``: may this recipe's teacher teach?"""

from pathlib import Path
from typing import Any

from prefect import flow

from core.artifacts.codec import read_json, write_json
from core.errors import InputError
from core.evaluation.qualification import minima_of, shortfalls
from core.models.adapter_directory import MANIFEST, Evidence, open_adapter
from core.recipe.loading import load
from core.recipe.recipe import Recipe
from core.recipe.teacher_steps import qualification_spec
from flows.graphs.refs import RunRefs
from flows.graphs.run import prepare_teacher_and_tasks, qualification_tasks
from flows.opd_cycle import DEFAULT_RECIPE, StepCaller
from flows.runs.sources import locate, open_plugins
from tasks.caching import open_store
from tasks.qualify_teacher import qualify_teacher as qualify

STEPS = 5
"""Two splits, traces, teacher and qualification: as many as the progress bar is told of."""


@flow(name="qualify-teacher", flow_run_name="{recipe_path}")
def qualify_teacher(
    recipe_path: str = DEFAULT_RECIPE, overrides: list[str] | None = None
) -> dict[str, Any]:
    """Let the teacher of a recipe solve the tasks that its students are measured on.

    Args:
        recipe_path: A YAML file, relative to the directory of the deployment.
        overrides: ``key=value`` changes to that file.

    Returns:
        The evidence, the minima, and what falls short of them.
    """
    loaded = load(Path(recipe_path), overrides or [])
    recipe, runtime = _without_demands(loaded.recipe), loaded.runtime
    open_plugins(recipe, runtime)
    recipe, runtime = locate(recipe, runtime)
    if recipe.models.teacher.plugin is not None:
        raise InputError(
            "models.teacher.plugin is code that gives targets, and cannot act by itself",
            "Qualify a model.",
        )
    run = RunRefs()
    caller = StepCaller(runtime, total=STEPS)
    prepare_teacher_and_tasks(recipe, caller, run)
    done = caller(
        qualify,
        qualification_spec(recipe),
        name=recipe.models.teacher.mode,
        teacher=run.teacher,
        tasks=qualification_tasks(recipe, caller, run),
    )
    caller.finish()
    evidence = Evidence.model_validate(
        read_json(open_store(runtime.store).path(done) / "qualification.json")
    )
    minima = minima_of(loaded.recipe)
    return {
        "evidence": evidence.model_dump(mode="json"),
        "minima": dict(minima),
        "shortfalls": shortfalls(evidence.rates, minima),
        "artifact": done.key,
    }


def _without_demands(recipe: Recipe) -> Recipe:
    """Return the recipe as if it demanded no evidence, which is about to be gathered."""
    teacher = recipe.models.teacher
    if teacher.adapter is None:
        return recipe
    adapter = teacher.adapter.model_copy(update={"require_policy_evaluation": False})
    models = recipe.models.model_copy(
        update={"teacher": teacher.model_copy(update={"adapter": adapter})}
    )
    return recipe.model_copy(update={"models": models})


def note_evidence(recipe_path: Path, overrides: list[str], evidence: Evidence) -> Path:
    """Write the evidence into the manifest of the recipe's teacher adapter; return its file.

    Raises:
        InputError: The teacher has no local adapter with a manifest.
    """
    adapter = load(recipe_path, overrides).recipe.models.teacher.adapter
    directory = Path(adapter.path) if adapter is not None else None
    if directory is None or not (directory / MANIFEST).is_file():
        raise InputError(
            "models.teacher.adapter names no local directory with a manifest to write into",
            "Export the adapter with `opd export-adapter`, and name it in the recipe.",
        )
    manifest = open_adapter(directory).manifest
    assert manifest is not None, "its file is there"
    noted = manifest.model_copy(update={"evidence": evidence})
    write_json(directory / MANIFEST, noted.model_dump(mode="json"))
    return directory / MANIFEST
