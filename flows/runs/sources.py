"""What a recipe takes from outside: weights and prompts, by content, and plug-ins, opened early."""

import hashlib
from pathlib import Path
from typing import TypeVar

from core.artifacts.external import read_external
from core.environments.plugins import open_environment
from core.errors import AbsentModelError, InputError, ModelSourceError, StoreError
from core.evaluation.qualification import check_evidence
from core.models.adapter_directory import AdapterDirectory
from core.models.building import DIGEST_PREFIX
from core.models.hub import stay_offline
from core.models.identity import (
    TEMPLATE_FILES,
    ResolvedModel,
    resolve,
    resolve_adapter,
    resolve_tokenizer,
)
from core.prompts.places import DIGEST_PREFIX as FILE_PREFIX
from core.prompts.places import locate_file
from core.recipe.offline import DIGEST_PREFIX as DATASET_PREFIX
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schema.adapters import AdapterSource, TeacherAdapter
from core.recipe.schema.models import Reference, Student, Teacher
from core.recipe.sources import environment_spec, prompt_source
from core.runs.local import read_local
from core.selection.plugins import open_selector
from core.teacher.plugins import find_teacher

M = TypeVar("M", Student, Teacher, Reference)


def open_plugins(recipe: Recipe, runtime: Runtime) -> None:
    """Open every plug-in before anything is computed, so that none fails hours later.

    Raises:
        PluginError: Code is not at hand, is not what was listed, or defines no such plug-in.
    """
    open_environment(environment_spec(recipe), runtime.plugins.environment)
    open_selector(recipe.selection, runtime.plugins.selector)
    if recipe.models.teacher.plugin is not None:
        find_teacher(recipe.models.teacher.plugin, runtime.plugins.teacher)


def locate(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, Runtime]:
    """Replace the places of models, files of prompts and a data set by digests of their content.

    Raises:
        ModelSourceError: A model cannot be found or is not whole.
        PromptFileError: A file of prompts cannot be found or read.
        InputError: A persisted data set cannot be found, or its record was altered.
    """
    return locate_dataset(*locate_prompts(*locate_models(recipe, runtime)))


def locate_on_disk(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, Runtime, str | None]:
    """Locate as ``locate`` does, but ask nobody and fetch nothing: a plan only looks.

    Returns:
        Recipe and runtime, and which model is not here; then all models stay as they were named,
        and the keys of the steps that read them are not those of a run.

    Raises:
        ModelSourceError: A model is not whole, or its id is not pinned.
        PromptFileError: A file of prompts cannot be found or read.
        InputError: A persisted data set cannot be found, or its record was altered.
    """
    absent = None
    try:
        found, here = _by_digest(recipe, runtime.model_copy(update={"offline": True}))
        recipe, runtime = found, here.model_copy(update={"offline": runtime.offline})
    except AbsentModelError as error:
        absent = f"{error.message.partition(' and could')[0]}. {error.hint}"
    return (*locate_dataset(*locate_prompts(recipe, runtime)), absent)


def locate_dataset(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, Runtime]:
    """Replace the place of a persisted data set, and note the place in the runtime.

    Only its record is read: the step that adopts it hashes the files.

    Raises:
        InputError: The directory has no sound record of a data set.
    """
    named = recipe.offline_kd.dataset_path
    if named is None or named.startswith(DATASET_PREFIX):
        return recipe, runtime
    directory = Path(named).expanduser().absolute()
    try:
        digest = read_external(directory, "dataset").digest
    except StoreError as error:
        raise InputError(f"offline_kd.dataset_path: {error.message}", error.hint) from error
    own = recipe.offline_kd.model_copy(update={"dataset_path": f"{DATASET_PREFIX}{digest}"})
    places = {**runtime.data_paths, digest: directory}
    return (
        recipe.model_copy(update={"offline_kd": own}),
        runtime.model_copy(update={"data_paths": places}),
    )


def locate_prompts(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, Runtime]:
    """Replace the place of every file of prompts, and note the places in the runtime.

    A recipe that is located already, or that has no such files, comes back as it is.

    Raises:
        PromptFileError: A file cannot be found or read.
    """
    source = prompt_source(recipe)
    if source is None:
        return recipe, runtime
    places = dict(runtime.data_paths)
    train = _located_files(source.train_files, runtime, places)
    held_out = _located_files(source.val_files, runtime, places)
    changed = source.model_copy(update={"train_files": train, "val_files": held_out})
    return (
        recipe.model_copy(update={"source": changed}),
        runtime.model_copy(update={"data_paths": places}),
    )


def _located_files(
    names: tuple[str, ...], runtime: Runtime, places: dict[str, Path]
) -> tuple[str, ...]:
    stamps = runtime.store.parent / "data-stamps"
    located = []
    for name in names:
        if name.startswith(FILE_PREFIX):
            located.append(name)
            continue
        found = locate_file(name, stamps)
        places[found.digest] = found.path
        located.append(found.name)
    return tuple(located)


def locate_models(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, Runtime]:
    """Replace every model's place by the digest of its files, and note the places in the runtime.

    A recipe that is located already, or that uses no pretrained weights, comes back as it is.

    Raises:
        ModelSourceError: A model or adapter cannot be found, is not whole, or they do not belong
            together.
        QualificationError: The teacher's adapter does not show what the recipe demands.
    """
    if runtime.offline and recipe.models.backend != "toy":
        stay_offline()
    return _by_digest(recipe, runtime)


def _by_digest(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, Runtime]:
    if recipe.models.backend == "toy":
        return recipe, runtime
    places = dict(runtime.model_paths)
    framed = recipe.rollout.own_template is not None
    asked = {"student": recipe.models.student, "teacher": recipe.models.teacher}
    if recipe.models.reference is not None:
        asked["reference"] = recipe.models.reference
    found = {
        role: _placed(role, model, runtime, places, framed=framed) for role, model in asked.items()
    }
    models = recipe.models.model_copy(update=found)
    return (
        recipe.model_copy(update={"models": models}),
        runtime.model_copy(update={"model_paths": places}),
    )


def runtime_at(run: Path, model: Path | None) -> Runtime:
    """Return a runtime that finds the base models of a run.

    Args:
        run: A run directory; where it was computed, it knows.
        model: Directory of a base model, for a run that came from elsewhere.

    Raises:
        ModelSourceError: The directory holds no model.
    """
    local = read_local(run)
    places = {} if local is None else dict(local.model_paths)
    if model is not None:
        found = resolve(str(model), offline=True)
        places |= {found.digest: found.path, _with_template(found): found.path}
    return Runtime(model_paths=places)


def _placed(role: str, asked: M, runtime: Runtime, places: dict[str, Path], *, framed: bool) -> M:
    located = _located(asked, runtime, places, framed=framed)
    return _adapted(role, asked, located, runtime, places)


def _located(model: M, runtime: Runtime, places: dict[str, Path], *, framed: bool) -> M:
    """Return a model by digest; where its chat template frames the episodes, that counts too."""
    if model.model_id.startswith(DIGEST_PREFIX):
        return model
    found = _resolved(model, runtime)
    digest = _with_template(found) if framed else found.digest
    places[digest] = found.path
    changes = {"model_id": f"{DIGEST_PREFIX}{digest}", "revision": None}
    if model.tokenizer_id is not None:
        tokenizer = resolve_tokenizer(
            model.tokenizer_id,
            revision=model.tokenizer_revision or model.revision,
            offline=runtime.offline,
            stamps=_stamps(runtime),
        )
        digest = _with_template(tokenizer) if framed else tokenizer.digest
        places[digest] = tokenizer.path
        changes |= {
            "tokenizer_id": f"{DIGEST_PREFIX}{digest}",
            "tokenizer_revision": None,
        }
    return model.model_copy(update=changes)


def _with_template(found: ResolvedModel) -> str:
    """Return a digest that holds for the chat templates too, which have files of their own."""
    digest = found.digest
    for pattern in TEMPLATE_FILES:
        for template in sorted(found.path.glob(pattern)):
            content = hashlib.sha256(template.read_bytes()).hexdigest()
            own = "" if template.name == pattern else f" {template.name}"
            digest = hashlib.sha256(f"{digest} {content}{own}".encode()).hexdigest()
    return digest


def _resolved(model: Student | Teacher | Reference, runtime: Runtime) -> ResolvedModel:
    return resolve(
        model.model_id,
        revision=model.revision,
        offline=runtime.offline,
        stamps=_stamps(runtime),
        trust_remote_code=model.trust_remote_code,
    )


def _stamps(runtime: Runtime) -> Path:
    return runtime.store.parent / "model-stamps"


def _adapted(role: str, asked: M, located: M, runtime: Runtime, places: dict[str, Path]) -> M:
    """Return a located model with its adapter located too, after both were held together."""
    adapter = asked.adapter
    if adapter is None or adapter.path.startswith(DIGEST_PREFIX):
        return located
    found = resolve_adapter(adapter.path, revision=adapter.revision, offline=runtime.offline)
    # The base is its files alone: a chat template beside them changes no weight.
    base = _resolved(asked, runtime)
    _check_base(f"models.{role}.adapter", adapter, found, base.digest)
    if isinstance(adapter, TeacherAdapter):
        check_evidence(adapter, found)
    places[found.digest] = found.path
    placed = adapter.model_copy(
        update={"path": f"{DIGEST_PREFIX}{found.digest}", "source": "local", "revision": None}
    )
    return located.model_copy(update={"adapter": placed})


def _check_base(
    key: str, adapter: AdapterSource | TeacherAdapter, found: AdapterDirectory, base: str
) -> None:
    """Refuse an adapter of another base or tokenizer, as far as its manifest can tell.

    Raises:
        ModelSourceError: They do not belong together.
    """
    manifest = found.manifest
    if manifest is None:
        return
    if manifest.base_digest != base:
        raise ModelSourceError(
            f"{key}.path = {adapter.path} was trained on a base with digest "
            f"{manifest.base_digest[:16]}…, and the model here has {base[:16]}…",
            "Use the base that it was trained on.",
        )
    asked = adapter.base_model_revision
    if asked not in (None, manifest.base_revision, manifest.base_digest):
        raise ModelSourceError(
            f"{key}.base_model_revision = {asked} is not the base of {adapter.path}",
            f"Its manifest says {manifest.base_revision or manifest.base_digest}.",
        )
    if adapter.tokenizer_fingerprint not in (None, manifest.tokenizer_digest):
        raise ModelSourceError(
            f"{key}.tokenizer_fingerprint is not that of {adapter.path}",
            f"Its manifest says {manifest.tokenizer_digest}.",
        )
