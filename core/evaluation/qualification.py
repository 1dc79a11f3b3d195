"""Whether a teacher may teach: rates that it showed, held against minima that the recipe names."""

from collections.abc import Mapping, Sequence

from core.errors import QualificationError
from core.evaluation.statistics import wilson
from core.models.adapter_directory import MANIFEST, AdapterDirectory, MeasuredRate
from core.recipe.schema.adapters import TeacherAdapter
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
            "Measure it with `opd qualify-teacher`, and export it with --evidence.",
        )
    lacking = shortfalls(evidence.rates, demanded(asked))
    if lacking:
        raise QualificationError(
            f"models.teacher.adapter.path = {asked.path} may not teach: {'; '.join(lacking)}",
            "Train the teacher further, or lower models.teacher.adapter.minimum_*.",
        )


def demanded(asked: TeacherAdapter) -> dict[str, float]:
    """Return the minima of a recipe's adapter, by name of the rate."""
    given = {
        "strict_success": asked.minimum_strict_success_rate,
        "recovery_after_error": asked.minimum_recovery_after_error_rate,
        "parse_valid_tool_call": asked.minimum_parse_valid_tool_call_rate,
        "tool_execution_success": asked.minimum_tool_execution_success_rate,
    }
    return {name: value for name, value in given.items() if value is not None}
