"""Models that stay in this process between tasks, one per role.

A task asks for the model that it needs; if that very model is resident, nothing is built, and if
its trainable weights are those of the wanted state, nothing is loaded. Models never leave the
process: tasks return references to artifacts.

Where the device is too small for all of them, or a runtime says so, a role at rest sleeps on the
host: its weights leave the device and come back when it is asked for. What comes back is compared
with what left, on a fixed text, before anyone may use it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import BackendError
from core.models.backend import Backend
from core.models.device_memory import DeviceMemory, device_memory
from core.models.probe import Probe, check_return, check_teacher, probe
from core.models.swap import Decision, MemoryRules, crowded, decide, obstacle

logger = logging.getLogger(__name__)

HOST = torch.device("cpu")


@dataclass(frozen=True)
class Identity:
    """What makes two models interchangeable.

    Attributes:
        digest: Content digest of everything that the weights come from (model directory or sizes
            and seed, adapter settings).
        dtype: Arithmetic.
        device: Where the weights live.
    """

    digest: str
    dtype: str
    device: str


@dataclass
class Resident:
    """A model in memory.

    Attributes:
        backend: The model.
        identity: What it is.
        state: Digest of the student state that its trainable weights hold; None if they are as
            built or were changed since.
        asleep: What it said before its weights went to the host; None while it is awake.
        shared: Adapters of the roles that use this model as their base; None if none do.
        heard: What the probe heard of these weights; None if it has not listened yet.
    """

    backend: Backend
    identity: Identity
    state: str | None = None
    asleep: Probe | None = None
    shared: object = None
    heard: Probe | None = None

    def load(self, digest: str, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        """Make the trainable weights those of a state, unless they are already.

        Args:
            digest: Content digest of the state.
            tensors: Reads its trainable tensors; called only where they are needed.

        Raises:
            BackendError: They do not fit this model.
        """
        if self.state == digest:
            return
        with self.changing():
            self.backend.load_trainable(tensors())
        self.state = digest

    @contextlib.contextmanager
    def changing(self) -> Iterator[Backend]:
        """Forget the state while weights change, so that an interruption leaves no false name."""
        self.state = self.heard = None
        yield self.backend

    def sleep(self) -> None:
        """Move the weights to the host, after noting what the model says."""
        if self.asleep is None:
            self.asleep = probe(self.backend)
            self.backend.move_to(HOST)

    def wake(self, role: str) -> None:
        """Move the weights back to the device, and compare what the model says.

        Raises:
            BackendError: It says something else.
        """
        before, self.asleep = self.asleep, None
        if before is None:
            return
        self.backend.move_to(torch.device(self.identity.device))
        check_return(role, before, probe(self.backend))

    def listen(self) -> None:
        """Refuse a teacher that says nothing, once for each set of weights.

        Raises:
            BackendError: Its logits are all equal or not finite.
        """
        if self.heard is None and self.asleep is None:
            self.heard = probe(self.backend)
            check_teacher(self.heard)


class Residents:
    """The models of one process, by role.

    Args:
        memory: Returns the memory of a kind of device.
    """

    def __init__(self, memory: Callable[[str], DeviceMemory] = device_memory) -> None:
        self._by_role: dict[str, Resident] = {}
        self._lock = threading.RLock()
        self._memory = memory
        self._rules = MemoryRules()
        self.decision: Decision | None = None
        """How the roles share the device; None while there were never two of them."""

    def acquire(
        self,
        role: str,
        identity: Identity,
        build: Callable[[], Backend],
        *,
        rules: MemoryRules | None = None,
        beside: Collection[str] = (),
        wake: bool = True,
    ) -> Resident:
        """Return the resident of a role, built anew if it is not the wanted model.

        Args:
            role: ``student`` or ``teacher``.
            identity: The wanted model.
            build: Makes it; called only where needed, after the role's previous model is gone, so
                that the two never share memory.
            rules: Whether roles may leave the device; None leaves all of them on it.
            beside: Roles that must stay awake with this one.
            wake: Whether it will compute now; one that sleeps and need not is left asleep.

        Raises:
            BackendError: A role cannot leave the device, or came back with other weights. It is
                gone then, and the next call loads it anew.
        """
        with self._lock:
            if role in self._by_role and self._by_role[role].identity != identity:
                self.evict(role)
            if role in self._by_role and self._by_role[role].asleep and not wake:
                return self._by_role[role]
            others = [
                name
                for name, one in self._by_role.items()
                if name not in (role, *beside) and one.asleep is None
            ]
            swaps = self._make_room(role, identity, others, rules)
            if role not in self._by_role:
                self._by_role[role] = Resident(
                    self._build(role, build, others if rules and not swaps else ()), identity
                )
            self._wake(role)
            return self._by_role[role]

    def evict(self, role: str | None = None) -> None:
        """Drop the model of a role, or all of them."""
        with self._lock:
            for name in [role] if role is not None else list(self._by_role):
                self._by_role.pop(name, None)
            if not self._by_role:
                self.decision = None

    def _make_room(
        self, role: str, identity: Identity, others: Collection[str], rules: MemoryRules | None
    ) -> bool:
        """Put the others to sleep where the decision says so; returns whether it does."""
        if rules is None or not self._by_role.keys() - {role}:
            return False
        undecided = self.decision is None or rules != self._rules
        grows = role not in self._by_role and not (self.decision and self.decision.swaps)
        if undecided or grows:
            backends = [one.backend for one in self._by_role.values()]
            fixed = next(filter(None, (obstacle(each.quantization) for each in backends)), None)
            memory = self._memory(identity.device)
            self.settle(
                decide(
                    rules,
                    device=identity.device,
                    free_bytes=memory.free_bytes(),
                    fixed=fixed,
                ),
                rules,
            )
        assert self.decision is not None, "it was just made"
        if self.decision.swaps:
            self._put_to_sleep(others, identity)
        return self.decision.swaps

    def settle(self, decision: Decision, rules: MemoryRules | None = None) -> None:
        """Note how roles share the device from now on."""
        if decision == self.decision and rules in (None, self._rules):
            return
        self._rules, self.decision = rules or self._rules, decision
        logger.info("memory: %s (%s)", decision.strategy, decision.reason)

    def _build(self, role: str, build: Callable[[], Backend], others: Collection[str]) -> Backend:
        """Build a model; where it does not fit, and ``auto`` may, with the others asleep."""
        logger.info("loading the %s", role)
        try:
            return build()
        except torch.OutOfMemoryError:
            movable = all(not obstacle(self._by_role[name].backend.quantization) for name in others)
            if self._rules.strategy != "auto" or not others or not movable:
                raise
        self.settle(crowded(role), self._rules)
        self._put_to_sleep(others, next(iter(self._by_role.values())).identity)
        return build()

    def _put_to_sleep(self, roles: Collection[str], identity: Identity) -> None:
        for name in roles:
            self._by_role[name].sleep()
        if roles:
            self._memory(identity.device).release_unused()

    def _wake(self, role: str) -> None:
        """Wake a role; one that came back damaged is dropped, so that a retry loads it anew."""
        try:
            self._by_role[role].wake(role)
        except BackendError:
            self.evict(role)
            raise


RESIDENTS = Residents()
"""The registry of this process."""
