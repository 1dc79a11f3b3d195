"""Model artifacts: a directory says which model it is, and may hold the weights to put into it."""

import hashlib
from collections.abc import Collection
from pathlib import Path

from pydantic import ValidationError

from core.artifacts.codec import write_json
from core.artifacts.filesystem import read_file
from core.artifacts.key import canonical_json
from core.errors import StoreError
from core.models.backend import Backend
from core.models.building import Placement, build_model, use_threads
from core.models.roles import RESIDENTS, Identity, Resident
from core.recipe.specs import ModelSpec, StudentSpec
from core.training.state import STATE, load_state, read_summary

MODEL = "model.json"
PLUGIN = "plugin.json"
STUDENT, TEACHER, REFERENCE = "student", "teacher", "reference"


def write_model(directory: Path, spec: StudentSpec) -> None:
    """Write which model the weights in ``directory`` belong to."""
    write_json(directory / MODEL, spec.model_dump(mode="json"))


def read_model(directory: Path) -> StudentSpec:
    """Read what ``write_model`` wrote.

    Raises:
        StoreError: It is missing or describes no model.
    """
    path = directory / MODEL
    try:
        return StudentSpec.model_validate_json(read_file(path))
    except ValidationError as error:
        raise StoreError(
            f"{path} describes no model: {error.errors()[0]['msg']}",
            "Run again: the artifact will be rebuilt.",
        ) from error


def open_model(
    role: str,
    spec: StudentSpec,
    placement: Placement,
    *,
    fresh: bool = False,
    beside: Collection[str] = (),
    wake: bool = True,
) -> Resident:
    """Return the resident model of a role.

    Args:
        role: ``student``, ``teacher`` or ``reference``.
        spec: Which model.
        placement: Device and directories.
        fresh: Build it anew, so that its weights are those before any training; otherwise the
            trainable weights are whatever they are.
        beside: Roles that must stay on the device with it.
        wake: Whether it will compute; one that sleeps on the host and need not stays there.

    Raises:
        ModelSourceError: Pretrained files are missing or unusable.
        BackendError: A role cannot leave the device, or came back to it with other weights.
    """
    identity = Identity(
        digest=hashlib.sha256(canonical_json(spec).encode()).hexdigest(),
        dtype=spec.model.dtype,
        device=placement.device,
    )
    use_threads(placement, spec.model.backend)
    if placement.shared and spec.model.backend == "hf":
        from core.models.shared_building import open_role

        return open_role(RESIDENTS, role, spec, placement, fresh=fresh)
    # A base that roles shared would lie beside the models that take their place.
    RESIDENTS.evict("backbone")
    if fresh:
        RESIDENTS.evict(role)
    return RESIDENTS.acquire(
        role,
        identity,
        lambda: build_model(spec.model, placement, seed=spec.seed, lora=spec.lora),
        rules=placement.memory,
        beside=beside,
        wake=wake,
    )


def open_weights(
    role: str,
    directory: Path,
    placement: Placement,
    *,
    beside: Collection[str] = (),
    wake: bool = True,
) -> Resident:
    """Return the model of an artifact with the artifact's weights in it.

    Nothing is read where the resident weights are the wanted ones. An artifact without a state
    (a pretrained teacher) is the model as it was built. A teacher must say something before it may
    teach.

    Args:
        role: ``student`` or ``teacher``.
        directory: Its artifact.
        placement: Device and directories.
        beside: Roles that must stay on the device with it.
        wake: Whether it will compute; one that sleeps on the host and need not stays there.

    Raises:
        ModelSourceError: Pretrained files are missing or unusable.
        StoreError: The artifact is damaged.
        BackendError: A role cannot leave the device, came back to it with other weights, or is a
            teacher that says nothing.
    """
    spec = read_model(directory)
    digest = read_summary(directory)[0] if (directory / STATE).exists() else None
    resident = open_model(role, spec, placement, beside=beside, wake=wake)
    if digest is not None and resident.state != digest:
        if not wake:
            resident = open_model(role, spec, placement, beside=beside)
        resident.load(digest, lambda: load_state(directory).tensors)
    if role == TEACHER:
        resident.listen()
    return resident


def open_pair(
    student: Path, teacher: Path, placement: Placement, *, together: bool
) -> tuple[Resident, Backend | None]:
    """Return the student of an update, and its teacher; None for a plug-in, which has no head.

    Args:
        student: The student's artifact.
        teacher: The teacher's artifact.
        placement: Device and directories.
        together: Whether both compute in the update; otherwise the teacher may sleep on the host.

    Raises:
        ModelSourceError: Pretrained files are missing or unusable.
        StoreError: An artifact is damaged.
        BackendError: A role cannot leave the device, or came back to it with other weights.
    """
    backend = None
    if not (teacher / PLUGIN).exists():
        beside = (STUDENT,) if together else ()
        backend = open_weights(TEACHER, teacher, placement, beside=beside, wake=together).backend
    beside = (TEACHER,) if together else ()
    return open_weights(STUDENT, student, placement, beside=beside), backend


def open_reference(model: ModelSpec | None, placement: Placement) -> Backend | None:
    """Return the frozen model that an update's student is compared with; None where none is named.

    Args:
        model: Weights, and the adapter on them.
        placement: Device and directories.

    Raises:
        ModelSourceError: Pretrained files are missing or unusable.
        BackendError: The adapter does not fit.
    """
    if model is None:
        return None
    frozen = StudentSpec(model=model, lora=None, seed=0)
    return open_model(REFERENCE, frozen, placement, beside=(STUDENT, TEACHER)).backend
