"""Whether a teacher may teach: rates that it showed, held against minima that the recipe names."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import QualificationError
from core.evaluation.statistics import wilson
from core.models.adapter_directory import MANIFEST, AdapterDirectory, Evidence, MeasuredRate
from core.recipe.recipe import Recipe
from core.recipe.schema.adapters import TeacherAdapter
from core.recipe.schema.qualification import Qualification
from core.recipe.teacher_specs import QualificationSpec
from core.trajectory.trajectory import Trajectory

MINIMA = {
    "strict_success": 0.80,
    "recovery_after_error": 0.75,
    "parse_valid_tool_call": 0.95,
    "tool_execution_success": 0.70,
}
"""Rates below which a teacher is refused where the recipe names no other."""


def measured(successes: int, total: int) -> MeasuredRate:
    """Return a rate with Wilson's 95 % interval; without a denominator it has neither."""
    if not total:
        return MeasuredRate(successes=0, total=0, estimate=None, lower=None, upper=None)
    interval = wilson(successes, total)
    return MeasuredRate(
        successes=successes,
        total=total,
        estimate=interval.estimate,
        lower=interval.lower,
        upper=interval.upper,
    )


def measure(trajectories: Sequence[Trajectory]) -> dict[str, MeasuredRate]:
    """Return the four rates of some episodes.

    ``strict_success`` counts episodes that were solved without one unreadable turn;
    ``recovery_after_error`` solved episodes among those in which a tool call failed;
    ``parse_valid_tool_call`` readable calls among emitted ones; ``tool_execution_success``
    executions that succeeded.
    """
    strict = [row.solved and not row.counters.parse_errors for row in trajectories]
    erring = [row.solved for row in trajectories if row.counters.tool_execution_errors]
    succeeded = sum(row.counters.tool_execution_successes for row in trajectories)
    failed = sum(row.counters.tool_execution_errors for row in trajectories)
    return {
        "strict_success": measured(sum(strict), len(strict)),
        "recovery_after_error": measured(sum(erring), len(erring)),
        "parse_valid_tool_call": measured(
            sum(row.counters.parsed_tool_calls for row in trajectories),
            sum(row.counters.emitted_tool_calls for row in trajectories),
        ),
        "tool_execution_success": measured(succeeded, succeeded + failed),
    }


def shortfalls(rates: Mapping[str, MeasuredRate], minima: Mapping[str, float]) -> list[str]:
    """Return a line for every rate below its minimum. A rate that nothing counted is no shortfall.

    The estimate is compared, not its lower bound: a minimum then means the same whatever the
    number of tasks, and the interval beside it says how much the estimate is worth.
    """
    lines = []
    for name, minimum in minima.items():
        rate = rates.get(name)
        if rate is None:
            lines.append(f"{name} was not measured, and at least {minimum:.2f} is demanded")
        elif rate.estimate is not None and rate.estimate < minimum:
            lines.append(
                f"{name} is {rate.estimate:.3f} ({rate.successes} of {rate.total}, 95 % interval "
                f"{rate.lower:.3f} to {rate.upper:.3f}), below {minimum:.2f}"
            )
    return lines


def rate_rows(
    rates: Mapping[str, MeasuredRate], minima: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return a row per rate: name, counts, estimate, interval, minimum and whether it is reached.

    A rate that nothing counted is reached, as ``shortfalls`` has it.
    """
    return [
        {
            "rate": name,
            **rate.model_dump(),
            "minimum": minima.get(name),
            "reached": rate.estimate is None or rate.estimate >= minima.get(name, 0.0),
        }
        for name, rate in rates.items()
    ]


def check_evidence(asked: TeacherAdapter, found: AdapterDirectory) -> None:
    """Refuse an adapter whose manifest does not show the rates that a recipe demands.

    Raises:
        QualificationError: The evaluation is missing, or a rate is below its minimum.
    """
    if not asked.require_policy_evaluation:
        return
    evidence = found.manifest.evidence if found.manifest is not None else None
    if evidence is None:
        raise QualificationError(
            f"models.teacher.adapter.path = {asked.path} carries no evaluation in {MANIFEST}",
            "Measure it with `opd qualify-teacher`; --write-evidence notes the rates there.",
        )
    lacking = shortfalls(evidence.rates, demanded(asked))
    if lacking:
        raise QualificationError(
            f"models.teacher.adapter.path = {asked.path} may not teach: {'; '.join(lacking)}",
            "Train the teacher further, or lower models.teacher.adapter.minimum_*.",
        )


def demanded(asked: TeacherAdapter | Qualification) -> dict[str, float]:
    """Return the minima that a section names, by name of the rate."""
    given = {
        "strict_success": asked.minimum_strict_success_rate,
        "recovery_after_error": asked.minimum_recovery_after_error_rate,
        "parse_valid_tool_call": asked.minimum_parse_valid_tool_call_rate,
        "tool_execution_success": asked.minimum_tool_execution_success_rate,
    }
    return {name: value for name, value in given.items() if value is not None}


def minima_of(recipe: Recipe) -> Mapping[str, float]:
    """Return the minima of the gate over those of the teacher's adapter over the usual ones."""
    teacher = recipe.models.teacher
    minima = dict(MINIMA)
    for section in (teacher.adapter, teacher.qualification):
        minima |= demanded(section) if section is not None else {}
    return minima


def covers(evidence: Evidence, spec: QualificationSpec, difficulty: str) -> bool:
    """Tell whether rates that were measured elsewhere answer what would be measured here.

    They do for the same world, difficulty and split, and as many tasks at least. A hint and the
    code of a world's plug-in are in no manifest, so what depends on them is measured.
    """
    return (
        spec.environment.plugin is None
        and not spec.hinted
        and spec.tasks is not None
        and evidence.environment == spec.environment.name
        and evidence.params == spec.environment.params
        and evidence.difficulty == difficulty
        and evidence.split == spec.split
        and evidence.tasks >= spec.tasks
    )


def admit(evidence: Evidence, minima: Mapping[str, float], artifact: str) -> None:
    """Refuse a run whose teacher does not reach the minima.

    Args:
        evidence: What it showed.
        minima: Least rates, by name.
        artifact: Where its episodes are kept, for the person who wants to read them.

    Raises:
        QualificationError: A rate is below its minimum; all that are, with their intervals.
    """
    lacking = shortfalls(evidence.rates, minima)
    if lacking:
        raise QualificationError(
            f"the teacher may not teach: {'; '.join(lacking)} (qualification {artifact}, "
            f"{evidence.tasks} {evidence.difficulty} tasks of {evidence.environment})",
            "Train it further or use another; or lower models.teacher.qualification.minimum_*.",
        )
