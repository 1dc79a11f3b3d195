"""``opd plan``: which steps a run would compute, and why, without running anything."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from core.artifacts.explain import explain
from core.artifacts.key import canonical_json
from core.artifacts.record import ArtifactRef, Record
from core.artifacts.store import Store
from core.errors import QualificationError
from core.recipe.loading import load
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.validation import check
from flows.graphs.gate import gate_of
from flows.graphs.run import run_graph, stop_reason
from flows.runs.sources import locate_on_disk
from tasks.caching import Step, hit_labels

Status = Literal["hit", "miss", "unknown"]
Walked = TypeVar("Walked")
SHOWN_REASONS = 6


@dataclass(frozen=True)
class Unknown:
    """An artifact that is not there yet: nothing downstream of it has a key."""

    step: str
    name: str
    mark: str = ""
    """Equal for equal steps."""


@dataclass(frozen=True)
class PlannedStep:
    """One line of a plan."""

    step: str
    name: str
    status: Status
    key: str | None = None
    reasons: tuple[str, ...] = ()
    """Why it is a miss; for a hit, what changed without making it one."""
    seconds: float | None = None
    """Wall seconds that it took, or that a step of its name took last; null where none did."""
    mark: str = ""
    """Equal for equal steps of several runs, whether their keys are known or not."""

    def as_unknown(self) -> Unknown:
        """Return what stands for its artifact until that is there."""
        return Unknown(self.step, self.name, self.mark)


@dataclass
class Plan:
    """All steps of a run in order."""

    steps: list[PlannedStep] = field(default_factory=list)
    refusal: str | None = None
    """Why the run would end after these steps: what its teacher showed falls short."""
    absent: str | None = None
    """Which model is not on this disk: steps that read it count as missing, and may be there."""

    def count(self, status: Status) -> int:
        """Return how many steps have a status."""
        return sum(step.status == status for step in self.steps)

    def as_document(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "hit": self.count("hit"),
            "miss": self.count("miss"),
            "unknown": self.count("unknown"),
            "refusal": self.refusal,
            "absent": self.absent,
            "steps": [{**step.__dict__, "reasons": list(step.reasons)} for step in self.steps],
        }


def plan_recipe(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """Plan a recipe file. Nothing is fetched for it."""
    loaded = load(path, overrides)
    recipe, runtime, absent = locate_on_disk(loaded.recipe, loaded.runtime)
    planned = plan(recipe, runtime)
    planned.absent = absent
    return planned


def plan(recipe: Recipe, runtime: Runtime) -> Plan:
    """Walk the graph of a run and look every step up.

    Args:
        recipe: What would be computed.
        runtime: Where the store is, and whether changed code is a miss.

    Raises:
        RecipeError: The recipe is refused.
        StoreError: The store cannot be read.
    """
    check(recipe, runtime)
    planner = Planner(Store(runtime.store), runtime)
    planner.walk(recipe, run_graph)
    return planner.plan


class Planner:
    """The ``call`` of a plan: it looks up where running would compute.

    Args:
        store: Where it looks.
        runtime: Whether changed code is a miss, and where plug-ins lie.
        history: Records by kind that were read already; shared by the plans of several runs.
        explains: Say why a miss is one; null reasons are cheaper.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        history: dict[str, list[Record]] | None = None,
        *,
        explains: bool = True,
    ) -> None:
        self.plan = Plan()
        self._store = store
        self._runtime = runtime
        self._history = {} if history is None else history
        self._explains = explains

    def walk(self, recipe: Recipe, graph: Callable[..., Walked]) -> Walked | None:
        """Walk a graph of a recipe; None where the run ends at its teacher's gate."""
        store = self._store
        gate = gate_of(recipe, self._runtime, store)
        try:
            return graph(recipe, self, lambda student: stop_reason(student, store), gate)
        except QualificationError as error:
            self.plan.refusal = error.message
            return None

    def __call__(
        self, step: Step, spec: BaseModel, *, name: str, **parents: Any
    ) -> ArtifactRef | Unknown:
        """Look one step up."""
        missing = [parent for parent in parents.values() if isinstance(parent, Unknown)]
        if missing:
            where = f"{missing[0].step} {missing[0].name}"
            mark = mark_of(step, spec, parents)
            return self._note(step, name, "unknown", mark, (f"its key is known after {where}",))
        request = step.request(spec, runtime=self._runtime, name=name, **parents)
        key = request.identity
        found = self._store.recall(key.key, step.kind)
        if found is None:
            why = self._why(step, key.payload) if self._explains else ()
            return self._note(step, name, "miss", key.key, why)
        record = self._store.record(found)
        labels = tuple(hit_labels(request, record))
        code = request.required_code
        if code is not None and self._store.recall(key.key, step.kind, code=code) is None:
            return self._note(step, name, "miss", key.key, labels)
        seconds = record.provenance.wall_time_s
        line = PlannedStep(step.name, name, "hit", key.key, labels, seconds, key.key)
        self.plan.steps.append(line)
        return found

    def _note(
        self, step: Step, name: str, status: Status, mark: str, reasons: tuple[str, ...]
    ) -> Unknown:
        key = mark if status == "miss" else None
        line = PlannedStep(step.name, name, status, key, reasons, self._last(step, name), mark)
        self.plan.steps.append(line)
        return Unknown(step.name, name, mark)

    def _siblings(self, step: Step) -> list[Record]:
        if step.kind not in self._history:
            self._history[step.kind] = self._store.siblings(step.kind)
        return [one for one in self._history[step.kind] if one.task == step.name]

    def _last(self, step: Step, name: str) -> float | None:
        """Return how long a step of this name took when it ran last."""
        if not self._explains:
            return None
        found = self._siblings(step)
        found = [one for one in found if one.name == name] or found
        newest = max(found, key=lambda one: one.provenance.started, default=None)
        return newest.provenance.wall_time_s if newest is not None else None

    def _why(self, step: Step, payload: dict[str, Any]) -> tuple[str, ...]:
        sibling, differences = explain(payload, self._siblings(step))
        if sibling is None:
            return ("never computed in this store",)
        if not differences:
            return ("computed before, but its files are gone or were altered",)
        near = f"unlike {sibling.name}-{sibling.key}"
        shown = [f"{d.path}: {d.there} → {d.here}" for d in differences[:SHOWN_REASONS]]
        more = len(differences) - SHOWN_REASONS
        return (near, *shown, *([f"… and {more} more"] if more > 0 else []))


def mark_of(step: Step, spec: BaseModel, parents: Mapping[str, Any]) -> str:
    """Return what tells a step whose key is not known yet from any other such step.

    Args:
        step: The step.
        spec: What it needs.
        parents: Role to artifact, or to what stands for one.
    """
    marks = {
        role: one.mark if isinstance(one, Unknown) else one.digest
        for role, one in parents.items()
        if one is not None
    }
    asked = {"task": step.name, "version": step.version, "spec": spec, "parents": marks}
    return hashlib.sha256(canonical_json(asked).encode()).hexdigest()


MARKS: dict[Status, str] = {"hit": "cached ", "miss": "compute", "unknown": "after  "}


def print_plan(planned: Plan) -> None:
    """Print a line per step, why steps would be computed, and what hits are flagged for."""
    for step in planned.steps:
        print(f"{MARKS[step.status]}  {step.step:<22} {step.name:<18} {step.key or ''}".rstrip())
        for reason in step.reasons if step.status == "miss" else ():
            print(f"             {reason}")
    for flag, steps in _flags(planned).items():
        print(f"flagged: {flag}\n         in {', '.join(steps)}")
    print(
        f"{planned.count('hit')} cached, {planned.count('miss')} to compute, "
        f"{planned.count('unknown')} that depend on those"
    )
    if planned.refusal is not None:
        print(f"the run ends there: {planned.refusal}")
    if planned.absent is not None:
        print(absent_words(planned.absent))


def absent_words(absent: str) -> str:
    """Say what a plan cannot know while a model is not here."""
    return f"not known: which steps that read a model are in the store. {absent}"


def _flags(planned: Plan) -> dict[str, list[str]]:
    """Return what cached steps are flagged for, each flag once, with the kinds of step it is on."""
    flags: dict[str, list[str]] = {}
    for step in planned.steps:
        for reason in step.reasons if step.status == "hit" else ():
            kinds = flags.setdefault(reason, [])
            if step.step not in kinds:
                kinds.append(step.step)
    return flags
