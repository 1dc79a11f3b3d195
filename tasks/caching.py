"""Turns a function that writes one artifact into a step: keyed, cached, retried, seen in the UI.

A step's key is computed here, from the task's name and version, its spec and its parents' content,
and nothing else. The store is asked before Prefect is: where it holds a sound artifact, Prefect
records the step as ``Cached`` and the function is not called. Importing this module, planning and
looking up import neither Prefect nor torch.

Example::

    @step(kind="rollouts", version="1", gpu=True)
    def sample_rollouts(
        context: StepContext, spec: RolloutSpec, student: ArtifactRef, splits: ArtifactRef
    ) -> dict[str, float]:
        '''Let the student play.'''
        write_trajectories(context.out / "trajectories.jsonl", play(context.path(student), spec))
        return {"episodes": 32}
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from pydantic import BaseModel

from core.artifacts.code import CodeDigest, code_digest
from core.artifacts.key import Key, compute_key
from core.artifacts.record import ArtifactRef, NumericClass
from core.artifacts.request import PublishRequest
from core.artifacts.store import Store
from core.recipe.plugin_keys import plugin_sources
from core.recipe.runtime import Runtime
from tasks.context import StepContext
from tasks.device_use import DeviceUse, memory_decision
from tasks.gpu import gpu_slot
from tasks.labels import default_numeric_class, hit_labels
from tasks.restoring import STEPS, remake
from tasks.retrying import DELAYS_S, RETRIES, retry_condition

logger = logging.getLogger(__name__)

LOGGED = ("core", "tasks", "flows")
"""Loggers whose lines are shown beside a run in the UI (PREFECT_LOGGING_EXTRA_LOGGERS)."""

Metrics: TypeAlias = "Mapping[str, Any] | None"
"""What a step returns: JSON data for the record, not content."""

Function: TypeAlias = Callable[..., Metrics]
"""``function(context, spec, **parents)``"""

NumericClassOf: TypeAlias = Callable[[Any, Runtime], NumericClass]
"""Says, without torch, what may change the last bits of a result: ``of(spec, runtime)``."""


@dataclass(frozen=True)
class Step:
    """One kind of step; made by :func:`step`."""

    function: Function
    kind: str
    version: str
    gpu: bool
    numeric_class: NumericClassOf | None
    delays_s: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name of the task, in keys and in the UI."""
        return self.function.__name__

    @property
    def spec_type(self) -> type[BaseModel]:
        """Type of the step's spec."""
        return get_type_hints(self.function)["spec"]

    def __call__(
        self, spec: BaseModel, *, runtime: Runtime, name: str, **parents: ArtifactRef | None
    ) -> ArtifactRef:
        """Return the artifact, from the store or by running the function as a Prefect task.

        Args:
            spec: The smallest description the step needs.
            runtime: Where and how; never part of the key.
            name: What a person calls this step, e.g. ``cycle-003``.
            **parents: Role to artifact; None where there is none.

        Raises:
            KeyEncodingError: Something in ``spec`` has no canonical text.
            StoreError: The store cannot be used.
        """
        return self.perform(self.prepare(spec, runtime=runtime, name=name, **parents))

    def perform(self, call: "StepCall") -> ArtifactRef:
        """Return the artifact of a prepared call, seen by Prefect as one task run."""
        return self._prefect_task(call, dict(call.request.parents))

    def prepare(
        self, spec: BaseModel, *, runtime: Runtime, name: str, **parents: ArtifactRef | None
    ) -> "StepCall":
        """Look a call up in the store; ``prepare(…).run()`` is the step without Prefect.

        Raises:
            KeyEncodingError: Something in ``spec`` has no canonical text.
            StoreError: The store cannot be read, or ``name`` cannot be part of an address.
        """
        request = self.request(spec, runtime=runtime, name=name, **parents)
        store = open_store(runtime.store)
        found = store.recall(request.identity.key, self.kind, code=request.required_code)
        if found is not None:
            for label in hit_labels(request, store.record(found)):
                _warn_once(f"{self.name}: {label}")
        return StepCall(self, request, runtime, found)

    def request(
        self, spec: BaseModel, *, runtime: Runtime, name: str, **parents: ArtifactRef | None
    ) -> PublishRequest:
        """Describe the artifact that a call would make, with its key.

        Raises:
            KeyEncodingError: Something in ``spec`` has no canonical text.
            StoreError: ``name`` cannot be part of an address.
            PluginError: The code of a plug-in is not at hand, or is not what was listed.
        """
        request = PublishRequest(
            kind=self.kind,
            name=name,
            task=self.name,
            version=self.version,
            spec=spec,
            parents={role: ref for role, ref in parents.items() if ref is not None},
            code=self.code(plugin_sources(spec, runtime.plugins)),
            numeric_class=self.numeric_class(spec, runtime) if self.numeric_class else None,
            seeds={field: value for field, value in spec if _is_seed(field, value)},
            strict_code=runtime.strict_code,
        )
        request.check_address()
        return request

    def identity(self, spec: BaseModel, parents: Mapping[str, ArtifactRef | None]) -> Key:
        """Return the key of a call, with its payload.

        Raises:
            KeyEncodingError: Something in ``spec`` has no canonical text.
        """
        given = {role: ref for role, ref in parents.items() if ref is not None}
        return compute_key(self.name, self.version, spec, given)

    def code(self, plugins: Mapping[str, Path] | None = None) -> CodeDigest:
        """Return the digest of the sources behind this step.

        Args:
            plugins: Sources of the plug-ins that it runs, by module name.
        """
        return _code(self.function.__module__, tuple(sorted((plugins or {}).items())))

    @cached_property
    def _prefect_task(self) -> Callable[["StepCall", dict[str, ArtifactRef]], ArtifactRef]:
        from prefect import task

        from tasks.policy import StorePolicy
        from tasks.serializer import StrictJSON

        # Prefect forwards what these let through, and by themselves they let warnings through.
        for name in LOGGED:
            logging.getLogger(name).setLevel(logging.INFO)

        def run(call: StepCall, parents: dict[str, ArtifactRef]) -> ArtifactRef:
            return call.run()  # the parents are there for the edges of the graph

        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(run, attribute, getattr(self.function, attribute))
        make = task(
            version=self.version,
            task_run_name="{call}",
            persist_result=True,
            result_serializer=StrictJSON(),
            cache_policy=StorePolicy(),
            cache_result_in_memory=False,
            retries=RETRIES,
            retry_delay_seconds=list(self.delays_s),
            retry_condition_fn=retry_condition,
        )
        return make(run)


class StepCall:
    """One call of a step. Not a dataclass, so that Prefect does not search it for results."""

    def __init__(
        self, step: Step, request: PublishRequest, runtime: Runtime, found: ArtifactRef | None
    ) -> None:
        self.step = step
        self.request = request
        self.runtime = runtime
        self.found = found
        """What the store held when the step was called."""

    def __str__(self) -> str:
        return f"{self.step.name} {self.request.name}"

    @property
    def cache_key(self) -> str:
        """Name of Prefect's record."""
        return f"{self.request.kind}-{self.request.identity.key}"

    def run(self) -> ArtifactRef:
        """Publish the artifact, calling the function unless another process just did.

        Parents of which only the large files are gone are made again first: no lock is held yet.

        Raises:
            StoreError: The disk is full, read-only or failed.
        """
        store = open_store(self.runtime.store)
        for parent in self.request.parents.values():
            if store.record(parent).shed:
                remake(store.record(parent), self.runtime)
        recorded = [self.request.numeric_class]
        request = replace(self.request, numeric_class=lambda: recorded[-1])

        def build(out: Path) -> Metrics:
            kept = store.progress(request.kind, request.identity.key)
            code = request.code.digest if request.code is not None else ""
            context = StepContext(store, self.runtime, out, recorded.append, kept, code)
            if not self.step.gpu:
                return self._compute(context)
            # Innermost of all locks: who holds the GPU never waits for a key.
            with gpu_slot(self.runtime):
                return self._compute_on_device(context)

        return store.publish(request, build)

    def _compute(self, context: StepContext) -> Metrics:
        return self.step.function(context, self.request.spec, **self.request.parents)

    def _compute_on_device(self, context: StepContext) -> Metrics:
        """Compute, and say in the record what that took of the device's memory."""
        use = DeviceUse(self.runtime)
        use.begin()
        try:
            metrics = self._compute(context)
            shared = memory_decision() if context.opened_a_model else {}
            return {**(metrics or {}), **use.peak(), **shared}
        finally:
            use.end()


def step(
    *,
    kind: str,
    version: str,
    gpu: bool = False,
    numeric_class: NumericClassOf | None = None,
    delays_s: tuple[float, ...] = DELAYS_S,
) -> Callable[[Function], Step]:
    """Make a step of ``function(context, spec, **parents) -> metrics``.

    Args:
        kind: Kind of the artifact, e.g. ``rollouts``.
        version: Raised whenever the meaning of the step or a default of its spec changes.
        gpu: The function runs a model: hold the GPU slot on CUDA, and record a numeric class.
        numeric_class: Says what may change the last bits, where device, threads and chunk are not
            all.
        delays_s: Seconds before each retry of a failure that can pass.
    """
    numeric = numeric_class or (default_numeric_class if gpu else None)

    def make(function: Function) -> Step:
        made = Step(function, kind, version, gpu, numeric, delays_s)
        STEPS[made.name] = made
        return made

    return make


def open_store(root: Path) -> Store:
    """Return this process's one :class:`Store` of a root, so that what it remembers is shared."""
    return _store(root.absolute())


@lru_cache(maxsize=8)
def _store(root: Path) -> Store:
    return Store(root)


@lru_cache(maxsize=256)
def _code(module: str, plugins: tuple[tuple[str, Path], ...]) -> CodeDigest:
    # Once per process: what runs is the code that was imported, not what is edited meanwhile.
    return code_digest(module, plugins=dict(plugins))


@lru_cache(maxsize=1024)
def _warn_once(text: str) -> None:
    logger.warning("%s", text)


def _is_seed(name: str, value: object) -> bool:
    return name.endswith("seed") and type(value) is int
