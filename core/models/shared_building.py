"""From a spec to a role on the shared base of this process."""

import hashlib

from core.artifacts.key import canonical_json
from core.errors import BackendError
from core.models.adapter_directory import open_adapter
from core.models.adapter_weights import load_adapter_tensors
from core.models.building import Placement, adapter_settings, build_model, check_adapter
from core.models.hf import HFBackend
from core.models.roles import Identity, Resident, Residents
from core.models.shared import SharedBackbone
from core.models.swap import Decision
from core.recipe.specs import StudentSpec

BACKBONE = "backbone"
"""Name of the base in the registry, beside the roles that use it."""

TOGETHER = Decision("resident", "one base holds every role")


def open_role(
    residents: Residents, role: str, spec: StudentSpec, placement: Placement, *, fresh: bool
) -> Resident:
    """Return the resident model of a role on the shared base.

    Args:
        residents: The registry.
        role: ``student``, ``teacher`` or ``reference``.
        spec: Which model; all roles agree in everything but the adapter.
        placement: Device and directories.
        fresh: Attach its adapter anew, with its initial values.

    Raises:
        ModelSourceError: Pretrained files are missing or unusable.
        BackendError: The adapter does not fit.
    """
    base = spec.model.model_copy(update={"adapter": None})
    identity = Identity(_digest(canonical_json(base)), base.dtype, placement.device)
    holder = residents.acquire(BACKBONE, identity, lambda: build_model(base, placement, seed=0))
    if not isinstance(holder.shared, SharedBackbone):
        for other in ("student", "teacher", "reference"):
            residents.evict(other)
        assert isinstance(holder.backend, HFBackend), "the toy backend is refused in recipes"
        holder.shared = SharedBackbone(holder.backend)
    backbone: SharedBackbone = holder.shared
    residents.settle(TOGETHER)
    if fresh:
        residents.evict(role)
    own = Identity(_digest(f"{identity.digest} {canonical_json(spec)}"), *_rest(identity))
    return residents.acquire(role, own, lambda: _attach(backbone, role, spec, placement))


def _attach(
    backbone: SharedBackbone, role: str, spec: StudentSpec, placement: Placement
) -> HFBackend:
    if spec.model.adapter is None:
        if role == "student" and (spec.lora is None or not spec.lora.enabled):
            raise BackendError(
                "a student on a shared base needs an adapter",
                "Set models.student.lora.enabled: true, or models.runtime: dual_model.",
            )
        return backbone.attach(role, spec.lora, seed=spec.seed)
    adapter = open_adapter(placement.directory(spec.model.adapter))
    check_adapter(adapter, spec.lora, backbone.base.tokenizer)
    return backbone.attach(
        role,
        adapter_settings(adapter, spec.lora),
        seed=spec.seed,
        tensors=load_adapter_tensors(adapter.path),
    )


def _rest(identity: Identity) -> tuple[str, str]:
    return identity.dtype, identity.device


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
