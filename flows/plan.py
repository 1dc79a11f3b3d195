"""``opd plan``: which steps a run would compute, and why, without running anything."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from core.artifacts.explain import explain
from core.artifacts.record import ArtifactRef, Record
from core.artifacts.store import Store
from core.errors import QualificationError
from core.recipe.loading import load
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.validation import check
from flows.gate import gate_of
from flows.graph import run_graph, stop_reason
from flows.sources import locate
from tasks.caching import Step, hit_labels

Status = Literal["hit", "miss", "unknown"]
SHOWN_REASONS = 6


@dataclass(frozen=True)
class Unknown:
    """An artifact that is not there yet: nothing downstream of it has a key."""

    step: str
    name: str


@dataclass(frozen=True)
class PlannedStep:
    """One line of a plan."""

    step: str
    name: str
    status: Status
    key: str | None = None
    reasons: tuple[str, ...] = ()
    """Why it is a miss; for a hit, what changed without making it one."""


@dataclass
class Plan:
    """All steps of a run in order."""

    steps: list[PlannedStep] = field(default_factory=list)
    refusal: str | None = None
    """Why the run would end after these steps: what its teacher showed falls short."""

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
            "steps": [{**step.__dict__, "reasons": list(step.reasons)} for step in self.steps],
        }


def plan_recipe(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """Plan a recipe file."""
    loaded = load(path, overrides)
    recipe, runtime = locate(loaded.recipe, loaded.runtime)
    return plan(recipe, runtime)


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
    store = Store(runtime.store)
    planner = _Planner(store, runtime)
    gate = gate_of(recipe, runtime, store)
    try:
        run_graph(recipe, planner, lambda student: stop_reason(student, store), gate)
    except QualificationError as error:
        planner.plan.refusal = error.message
    return planner.plan


class _Planner:
    """The ``call`` of a plan: it looks up where running would compute."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.plan = Plan()
        self._store = store
        self._runtime = runtime
        self._siblings: dict[str, list[Record]] = {}

    def __call__(
        self, step: Step, spec: BaseModel, *, name: str, **parents: Any
    ) -> ArtifactRef | Unknown:
        missing = [parent for parent in parents.values() if isinstance(parent, Unknown)]
        if missing:
            where = f"{missing[0].step} {missing[0].name}"
            return self._note(step, name, "unknown", None, (f"its key is known after {where}",))
        request = step.request(spec, runtime=self._runtime, name=name, **parents)
        key = request.identity
        found = self._store.recall(key.key, step.kind)
        if found is None:
            return self._note(step, name, "miss", key.key, self._why(step, key.payload))
        labels = tuple(hit_labels(request, self._store.record(found)))
        served = self._store.recall(key.key, step.kind, code=request.required_code)
        if served is None:
            return self._note(step, name, "miss", key.key, labels)
        self._note(step, name, "hit", key.key, labels)
        return served

    def _note(
        self, step: Step, name: str, status: Status, key: str | None, reasons: tuple[str, ...]
    ) -> Unknown:
        self.plan.steps.append(PlannedStep(step.name, name, status, key, reasons))
        return Unknown(step.name, name)

    def _why(self, step: Step, payload: dict[str, Any]) -> tuple[str, ...]:
        if step.kind not in self._siblings:
            self._siblings[step.kind] = self._store.siblings(step.kind)
        siblings = [one for one in self._siblings[step.kind] if one.task == step.name]
        sibling, differences = explain(payload, siblings)
        if sibling is None:
            return ("never computed in this store",)
        if not differences:
            return ("computed before, but its files are gone or were altered",)
        near = f"unlike {sibling.name}-{sibling.key}"
        shown = [f"{d.path}: {d.there} → {d.here}" for d in differences[:SHOWN_REASONS]]
        more = len(differences) - SHOWN_REASONS
        return (near, *shown, *([f"… and {more} more"] if more > 0 else []))


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


def _flags(planned: Plan) -> dict[str, list[str]]:
    """Return what cached steps are flagged for, each flag once, with the kinds of step it is on."""
    flags: dict[str, list[str]] = {}
    for step in planned.steps:
        for reason in step.reasons if step.status == "hit" else ():
            kinds = flags.setdefault(reason, [])
            if step.step not in kinds:
                kinds.append(step.step)
    return flags
