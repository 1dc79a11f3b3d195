"""Models that stay in this process between tasks, one per role.

A task asks for the model that it needs; if that very model is resident, nothing is built, and if
its trainable weights are those of the wanted state, nothing is loaded. Models never leave the
process: tasks return references to artifacts.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from core.models.backend import Backend

logger = logging.getLogger(__name__)


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
    """

    backend: Backend
    identity: Identity
    state: str | None = None

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
        self.state = None
        yield self.backend


class Residents:
    """The models of one process, by role."""

    def __init__(self) -> None:
        self._by_role: dict[str, Resident] = {}
        self._lock = threading.RLock()

    def acquire(self, role: str, identity: Identity, build: Callable[[], Backend]) -> Resident:
        """Return the resident of a role, built anew if it is not the wanted model.

        Args:
            role: ``student`` or ``teacher``.
            identity: The wanted model.
            build: Makes it; called only where needed, after the role's previous model is gone, so
                that the two never share memory.
        """
        with self._lock:
            if role in self._by_role and self._by_role[role].identity != identity:
                self.evict(role)
            if role not in self._by_role:
                logger.info("loading the %s", role)
                self._by_role[role] = Resident(build(), identity)
            return self._by_role[role]

    def evict(self, role: str | None = None) -> None:
        """Drop the model of a role, or all of them."""
        with self._lock:
            for name in [role] if role is not None else list(self._by_role):
                self._by_role.pop(name, None)


RESIDENTS = Residents()
"""The registry of this process."""
