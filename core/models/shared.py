"""One base in memory and an adapter per role: student, teacher, reference.

Which adapter computes is said by a scope. Outside of any scope it is the student's, so that a
backward pass, which may run layers again, meets the adapter that its forward pass used. That is
asserted, because nothing else would notice: with another adapter in force the student gets no
gradient, or another role gets the student's.

peft's own switch also decides which parameters require gradients. Here that follows from a list of
the student's parameters alone, whatever is attached or switched.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import BackendError, RoleScopeError
from core.models.adapters import attach_lora
from core.models.backend import KVCache
from core.models.hf import HFBackend
from core.models.parameters import overwrite
from core.recipe.schema.adapters import Lora

STUDENT = "student"
ADAPTERS = {STUDENT: "default", "teacher": "teacher", "reference": "reference"}
"""What peft calls the adapter of a role; the student's is called as it is without other roles."""


class SharedBackbone:
    """A frozen base that several roles use.

    Args:
        base: A model without an adapter.
    """

    def __init__(self, base: HFBackend) -> None:
        self.base = base
        self.active: str | None = None
        """The role whose adapter computes now; None is the base alone."""
        self._roles: dict[str, RoleBackend] = {}
        self._layers: list[Any] = []
        self._lock = threading.RLock()

    def attach(
        self,
        role: str,
        lora: Lora | None,
        *,
        seed: int = 0,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> "RoleBackend":
        """Give a role an adapter of its own, in place of the one that it had.

        Args:
            role: ``student``, which is trained, ``teacher`` or ``reference``, which are not.
            lora: Settings of the adapter; None is the base as it is.
            seed: Seed of its initial values.
            tensors: Its values, by plain name; None leaves the initial ones.

        Raises:
            BackendError: The adapter trains biases, which are the base's; its tensors or targets
                do not fit; or a quantised base has other gradients than its weights.
        """
        if lora is not None and lora.bias != "none":
            raise BackendError(
                f"the {role}'s adapter trains biases of the base (lora.bias={lora.bias}), which "
                "every role on models.runtime=shared_backbone shares",
                "Set lora.bias: none, or models.runtime: dual_model.",
            )
        with self._lock:
            self._detach(role)
            if lora is not None:
                attach_lora(self.base.model, lora, seed, ADAPTERS[role])
            self._layers = [each for each in self.base.model.modules() if hasattr(each, "lora_A")]
            self._roles[role] = RoleBackend(self, role)
            self._activate(STUDENT if STUDENT in self._roles else None)
            self._roles[role].settle(seed, tensors)
            return self._roles[role]

    @contextlib.contextmanager
    def scope(self, role: str | None) -> Iterator[None]:
        """Let the adapter of a role compute meanwhile; afterwards the one before does again.

        Args:
            role: An attached role; None is the base alone.
        """
        with self._lock:
            before = self.active
            self._activate(role)
            try:
                yield
            finally:
                self._activate(before)

    def check_gradients(self, role: str) -> None:
        """Refuse gradients of anything but a role's adapter, and missing ones of that.

        Raises:
            RoleScopeError: With the first parameter at fault.
        """
        own = {id(p): name for name, p in self._roles[role].trainable().items()}
        for name, parameter in self.base.model.named_parameters():
            gradient = parameter.grad
            if id(parameter) in own and gradient is None:
                raise RoleScopeError(
                    f"{own[id(parameter)]} of the {role} got no gradient",
                    "Another role's adapter was in force in a forward or backward pass.",
                )
            if id(parameter) not in own and gradient is not None and bool(gradient.any()):
                raise RoleScopeError(
                    f"{name} is not the {role}'s and got a gradient",
                    "Another role's adapter was in force in a forward or backward pass.",
                )

    def _activate(self, role: str | None) -> None:
        """Switch adapters, and say again which parameters require gradients."""
        if role == self.active and not self._is_unsettled():
            return
        for layer in self._layers:
            layer.set_adapter([] if role is None else [ADAPTERS[role]])
        self.active = role
        trained = self._roles[STUDENT].own if STUDENT in self._roles else {}
        for parameter in self._adapter_parameters():
            parameter.requires_grad = False
        for parameter in trained.values():
            parameter.requires_grad = True

    def _is_unsettled(self) -> bool:
        """Whether peft attached something since the last switch, which turns adapters on."""
        wanted = [] if self.active is None else [ADAPTERS[self.active]]
        return any(layer.active_adapters != wanted for layer in self._layers)

    def _adapter_parameters(self) -> list[nn.Parameter]:
        return [p for layer in self._layers for n, p in layer.named_parameters() if "lora_" in n]

    def _detach(self, role: str) -> None:
        if self._roles.pop(role, None) is not None:
            # peft would put another adapter in force in place of one that it deletes.
            self._activate(None)
            for layer in self._layers:
                if ADAPTERS[role] in layer.lora_A:
                    layer.delete_adapter(ADAPTERS[role])


class RoleBackend(HFBackend):
    """What one role sees of a shared base: a model like any other.

    Args:
        backbone: The base and its adapters.
        role: Whose adapter computes.
    """

    def __init__(self, backbone: SharedBackbone, role: str) -> None:
        vars(self).update(vars(backbone.base))
        self._backbone = backbone
        self._role = role
        self._parameters = role_parameters(backbone.base.model, role)
        self._trained = set(self.own) if role == STUDENT else set()
        self._frozen_memo = ([], "")

    @property
    def own(self) -> dict[str, nn.Parameter]:
        """Parameters of the role's adapter, by plain name."""
        return {name: p for name, p in self._parameters.items() if ".lora_" in name}

    def settle(self, seed: int, tensors: Mapping[str, Tensor] | None) -> None:
        """Check gradients of a quantised student, and fill in values."""
        if self._role == STUDENT and self.quantization != "none":
            self._check_fresh_gradients(seed)
        if tensors is not None:
            overwrite(self.own, tensors)

    def hidden_states(self, token_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Run the trunk with the role's adapter; the backward pass asserts that it still is."""
        with self._backbone.scope(self._role):
            hidden_BTH = super().hidden_states(token_ids_BT, lengths_B)
        if hidden_BTH.requires_grad:
            hidden_BTH.register_hook(self._check_scope)
        return hidden_BTH

    def project(self, hidden_NH: Tensor) -> Tensor:
        """Apply the head with the role's adapter."""
        with self._backbone.scope(self._role):
            return super().project(hidden_NH)

    def step(self, token_ids_SQ: Tensor, positions_SQ: Tensor, cache: KVCache) -> Tensor:
        """Take an engine step with the role's adapter."""
        with self._backbone.scope(self._role):
            return super().step(token_ids_SQ, positions_SQ, cache)

    def check_gradients(self) -> None:
        """Refuse gradients of anything but this role's adapter, and missing ones of that.

        Raises:
            RoleScopeError: With the first parameter at fault.
        """
        self._backbone.check_gradients(self._role)

    def move_to(self, device: torch.device) -> None:
        """Refuse: the base is other roles' too.

        Raises:
            BackendError: Always.
        """
        raise BackendError(
            f"the {self._role} shares its base and cannot move to {device} alone",
            "Set models.runtime: dual_model where models must be swapped.",
        )

    def _check_scope(self, gradient: Tensor) -> None:
        del gradient
        if self._backbone.active != self._role:
            raise RoleScopeError(
                f"a backward pass of the {self._role} began while the adapter of "
                f"{self._backbone.active or 'nobody'} was in force",
                "Leave the other role's scope before the backward pass.",
            )


def role_parameters(model: nn.Module, role: str) -> dict[str, nn.Parameter]:
    """Return base and adapter of a role by the names that they have without other roles."""
    adapter = ADAPTERS[role]
    found = {}
    for name, parameter in model.named_parameters():
        parts = [part for part in name.split(".") if part != "base_layer"]
        if any(part.startswith("lora_") for part in parts):
            if adapter not in parts:
                continue
            parts.remove(adapter)
        found[".".join(parts)] = parameter
    return found
