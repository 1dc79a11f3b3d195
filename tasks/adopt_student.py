"""A student of another run, found by its content and checked before a model is touched."""

from core.artifacts.filesystem import read_file, write_file
from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.errors import InputError
from core.recipe.adoption_spec import AdoptionSpec
from core.recipe.runtime import Runtime
from tasks.caching import StepContext, step
from tasks.restoring import remake


@step(kind="student", version="1")
def adopt_student(context: StepContext, spec: AdoptionSpec) -> dict[str, str]:
    """Copy the files of a student, which then has the content digest that the recipe names."""
    restore_student(context.store, spec.digest, context.runtime)
    ref = find_student(context.store, spec.digest)
    check_model(context.store, ref, spec)
    origin = context.path(ref)
    for name in context.record(ref).files:
        write_file(context.out / name, [read_file(origin / name)])
    return {"adopted_from": f"{ref.name}-{ref.key}"}


def restore_student(store: Store, digest: str, runtime: Runtime) -> None:
    """Make a student again whose tensors were removed to save space, where no copy is whole.

    Raises:
        StoreError: No step of this version makes it, or other bytes came out.
    """
    named = [one for one in store.siblings("student") if one.digest == digest and not one.pruned]
    if any(not one.shed for one in named):
        return
    for record in named:
        # An adopted one is a copy, perhaps the very one that is being made.
        if record.task != adopt_student.name:
            remake(record, runtime)
            return


def find_student(store: Store, digest: str) -> ArtifactRef:
    """Return a sound student with a content digest.

    Raises:
        InputError: The store has none, or only altered ones.
    """
    named = [one.ref for one in store.siblings("student") if one.digest == digest]
    problems: list[str] = []
    for ref in named:
        found = store.verify(ref, deep=True)
        if not found:
            return ref
        problems += found
    why = problems[0] if problems else f"no student there has the content {digest}"
    raise InputError(
        f"run.start = {digest[:16]}… cannot be gone on from: {store.root}: {why}",
        "Name the store of that run as runtime.store, or run its recipe again.",
    )


def check_model(store: Store, ref: ArtifactRef, spec: AdoptionSpec) -> None:
    """Refuse a student of another model before anything of it is loaded.

    Raises:
        InputError: Architecture, base weights, tokenizer or adapter differ.
    """
    from core.training.opening import read_model

    found = read_model(store.path(ref))
    for name in ("model", "lora"):
        if getattr(found, name) != getattr(spec, name):
            raise InputError(
                f"run.start = {spec.digest[:16]}… is of another student: its {name} differs from "
                "section models.student",
                "Write models.student as the recipe of that run has it.",
            )
