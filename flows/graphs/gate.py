"""The gate of a run: who answers for a teacher, and who judges it."""

from collections.abc import Callable
from pathlib import Path

from core.artifacts.codec import read_json
from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.evaluation.qualification import admit, covers, minima_of
from core.models.adapter_directory import Evidence, open_adapter
from core.models.building import DIGEST_PREFIX
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.sources import prompt_source, world
from core.recipe.teacher_steps import qualification_spec
from flows.graphs.run import Gate, Ref

QUALIFICATION = "qualification.json"


def gate_of(
    recipe: Recipe,
    runtime: Runtime,
    store: Store,
    show: Callable[[Evidence], None] = lambda evidence: None,
) -> Gate:
    """Return the gate of a located recipe.

    Args:
        recipe: What is computed, with models by digest.
        runtime: Says where the teacher's adapter lies.
        store: Holds the qualification.
        show: Told of what the teacher showed before it is judged.
    """
    minima = minima_of(recipe)

    def judge(qualification: Ref) -> None:
        if not isinstance(qualification, ArtifactRef):
            return  # while planning: nothing was measured yet
        evidence = read_evidence(store.path(qualification))
        show(evidence)
        admit(evidence, minima, qualification.key)

    return Gate(manifest_evidence(recipe, runtime), judge)


def read_evidence(directory: Path) -> Evidence:
    """Return what a qualification's artifact says."""
    return Evidence.model_validate(read_json(directory / QUALIFICATION))


def manifest_evidence(recipe: Recipe, runtime: Runtime) -> Evidence | None:
    """Return rates in the manifest of the teacher's adapter that spare it a measurement.

    Raises:
        ModelSourceError: The adapter's directory is damaged.
    """
    adapter = recipe.models.teacher.adapter
    if recipe.models.teacher.qualification is None or adapter is None or prompt_source(recipe):
        return None
    path = runtime.model_paths.get(adapter.path.removeprefix(DIGEST_PREFIX))
    manifest = open_adapter(path).manifest if path is not None else None
    evidence = manifest.evidence if manifest is not None else None
    if evidence is None:
        return None
    spec, difficulty = qualification_spec(recipe), world(recipe).difficulty
    return evidence if covers(evidence, spec, difficulty) else None
