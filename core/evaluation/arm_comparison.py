"""Two arms on the same tasks under the same seeds: effect, interval, verdict, what is missing."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from core.evaluation.crossed import (
    ROUNDING,
    Components,
    Outcomes,
    components,
    outcome_matrix,
)
from core.evaluation.statistics import (
    MIN_SEEDS_FOR_POPULATION,
    Interval,
    hierarchical_bootstrap,
    holm,
    wilson,
)
from core.evaluation.student_t import t_quantile, t_two_sided_p

MOST_UNITS = 10_000
"""Seeds or tasks beyond which advice says that no number of them is practical."""
NO_CLAIM = "one seed: no significance is claimed"
ONE_TASK = "one task: no significance is claimed"


@dataclass(frozen=True)
class Paired:
    """The differences of two arms."""

    arm: str
    against: str
    values: Outcomes
    """Crossed; their mean is the effect."""
    cells: Sequence[float]
    """Difference of every pair that counts, before any weighting."""
    units: int
    """Tasks of which at least one pair counts."""


@dataclass(frozen=True)
class Advice:
    """How much more data would decide a comparison, if the estimates stayed as they are."""

    detectable: float
    """Half width of the present interval: smaller effects cannot be told from 0."""
    seeds_needed: int | None
    """Seeds in all, with the tasks at hand; None where no practical number suffices."""
    tasks_needed: int | None
    """Tasks in all, with the seeds at hand; None where no practical number suffices."""


@dataclass(frozen=True)
class ArmComparison:
    """What one arm does better than another, paired by seed and task."""

    arm: str
    against: str
    effect: Interval
    """Mean difference, arm minus the other."""
    p_value: float | None
    """Two-sided, of no difference; None with one seed or one task."""
    decided: bool | None
    """Rejected by Holm's procedure over all comparisons of a report; None where ``p_value`` is."""
    wins: int
    """Pairs in which the arm is better."""
    losses: int
    ties: int
    seeds: int
    """Seeds that both arms have."""
    advice: Advice | None = None
    """None where it is decided, and with one seed or task, where variance has no estimate."""

    @property
    def verdict(self) -> str:
        """The comparison in a few words."""
        if self.decided is None:
            return NO_CLAIM if self.seeds == 1 else ONE_TASK
        if not self.decided:
            return "undecided"
        side = "better" if self.effect.estimate > 0 else "worse"
        condition = ", for these seeds" if self.effect.conditional_on_seeds else ""
        return f"{side}{condition}"


def compare_arms(
    arms: Mapping[str, Outcomes],
    pairs: Sequence[tuple[str, str]],
    *,
    seed: int,
    alpha: float = 0.05,
    looks: int = 1,
) -> list[ArmComparison]:
    """Compare pairs of arms, with family-wise error at most ``alpha`` over all of them.

    With two to four seeds intervals and p values are conditional on the seeds: the tasks, with
    their mean over seeds, are the units. From five seeds on both factors are random.

    Args:
        arms: Value of every seed and task, by arm.
        pairs: Arm, and the arm that it is compared with.
        seed: Of the resampling.
        alpha: Family-wise error rate.
        looks: How often the data are looked at in all before the experiment ends. Each look spends
            alpha / looks, so the error over all of them stays below alpha however they depend
            (Bonferroni).

    Raises:
        ValueError: If a pair does not have the same seeds and tasks, or ``looks`` is below 1.
    """
    return compare_paired([pair_up(arms, *pair) for pair in pairs], seed, alpha, looks)


def compare_paired(
    pairs: Sequence[Paired], seed: int, alpha: float = 0.05, looks: int = 1
) -> list[ArmComparison]:
    """Compare as ``compare_arms`` does; the pairs are one family.

    Raises:
        ValueError: If ``looks`` is below 1.
    """
    if looks < 1:
        raise ValueError(f"{looks} looks: there must be one")
    level = alpha / looks
    compared = [_compare(pair, seed, level) for pair in pairs]
    names = {f"{i}": row.p_value for i, row in enumerate(compared) if row.p_value is not None}
    rejected = holm(names, level)
    strictest = level / max(len(rejected) - sum(rejected.values()), 1)
    return [
        _decide(row, pair.values, rejected.get(f"{i}"), strictest)
        for i, (row, pair) in enumerate(zip(compared, pairs, strict=True))
    ]


def _decide(
    row: ArmComparison, values: Outcomes, decided: bool | None, strictest: float
) -> ArmComparison:
    """Add the verdict, and to what is open the advice for the next step of Holm's procedure."""
    still_open = decided is not None and not decided
    advice = advise(components(outcome_matrix(values)), strictest) if still_open else None
    return replace(row, decided=decided, advice=advice)


def pair_up(arms: Mapping[str, Outcomes], arm: str, against: str) -> Paired:
    """Return the differences of two arms.

    Raises:
        ValueError: If they do not have the same seeds and tasks.
    """
    values = paired_differences(arms[arm], arms[against])
    cells = [value for tasks in values.values() for value in tasks.values()]
    return Paired(arm, against, values, cells, len(values[min(values)]))


def paired_differences(arm: Outcomes, other: Outcomes) -> Outcomes:
    """Return one arm's values minus another's.

    Raises:
        ValueError: If they do not have the same seeds and tasks.
    """
    same = sorted(arm) == sorted(other)
    if not same or any(arm[one].keys() != other[one].keys() for one in arm):
        raise ValueError("paired arms need the same tasks under the same seeds")
    return {one: {task: arm[one][task] - other[one][task] for task in arm[one]} for one in arm}


def pooled_and_mean_rate(
    outcomes: Mapping[int, Mapping[str, float | None]],
) -> tuple[float | None, float | None]:
    """Return a rate over all cells, and the mean of the seeds' rates.

    They differ where seeds have different denominators, as recovery rates do: a seed with few
    errors counts as much as one with many in the mean. None cells are outside the denominator.
    """
    by_seed = [
        [value for value in tasks.values() if value is not None] for tasks in outcomes.values()
    ]
    cells = [value for seed in by_seed for value in seed]
    rates = [sum(seed) / len(seed) for seed in by_seed if seed]
    if not cells:
        return None, None
    return sum(cells) / len(cells), sum(rates) / len(rates)


def _compare(pair: Paired, seed: int, level: float) -> ArmComparison:
    values, cells = pair.values, pair.cells
    effect = hierarchical_bootstrap(values, seed=seed, confidence=1.0 - level)
    if effect.upper - effect.lower <= ROUNDING:
        effect = _without_spread(effect, pair.units, 1.0 - level)
    enough = len(values) > 1 and effect.count > len(values)
    return ArmComparison(
        arm=pair.arm,
        against=pair.against,
        effect=effect,
        p_value=_p_value(values, pair.units) if enough else None,
        decided=None,
        wins=sum(value > 0 for value in cells),
        losses=sum(value < 0 for value in cells),
        ties=sum(value == 0 for value in cells),
        seeds=len(values),
    )


def _without_spread(effect: Interval, units: int, confidence: float) -> Interval:
    """Return an interval where resampling has none, because all tasks agree.

    So many tasks that agree leave room for a share of others, at most Wilson's upper bound of
    none in so many; those may differ by anything from −1 to 1.
    """
    share = wilson(0, units, confidence).upper
    reach = max(abs(effect.estimate), 1.0)
    lower = effect.estimate - share * (reach + effect.estimate)
    upper = effect.estimate + share * (reach - effect.estimate)
    return replace(effect, lower=lower, upper=upper)


def _p_value(differences: Outcomes, units: int) -> float:
    """Return the two-sided p value of no difference, by Student's t.

    There are at most as many degrees of freedom as tasks that count, less one. With few tasks
    their differences are far from normal, so p is at least that of a sign test over the tasks.
    """
    values_ST = outcome_matrix(differences)
    if len(values_ST) >= MIN_SEEDS_FOR_POPULATION:
        found = components(values_ST)
        mean, error, degrees = found.mean, found.standard_error, found.degrees
    else:
        means_T = values_ST.mean(axis=0)
        mean, degrees = float(means_T.mean()), len(means_T) - 1.0
        error = float(means_T.std(ddof=1)) / math.sqrt(len(means_T))
    degrees = min(degrees, units - 1.0)
    if error > ROUNDING and degrees > 0.0:
        return max(t_two_sided_p(mean / error, degrees), _least_p(units))
    # Nothing varies, so there is no standard error: the level at which the interval reaches 0.
    reached = math.sqrt(units * min(abs(mean), 1.0)) if abs(mean) > ROUNDING else 0.0
    return max(2.0 * NormalDist().cdf(-reached), _least_p(units) if reached else 1.0)


def _least_p(tasks: int) -> float:
    """Return the chance that so many tasks all differ to one side, where no side is likelier."""
    return min(1.0, 2.0 * 0.5**tasks)


def advise(found: Components, level: float = 0.05) -> Advice:
    """Return how many seeds or tasks would put 0 outside the interval of the present estimate.

    Degrees of freedom are those of the smaller factor that is increased, so the advice errs on
    the side of more.

    Args:
        found: Variance components of the differences.
        level: Largest p value that decides.
    """
    if found.standard_error <= ROUNDING:
        return Advice(0.0, None, None)

    def half_width(seeds: int, tasks: int) -> float:
        error = found.standard_error_of(seeds, tasks)
        return error * t_quantile(1.0 - level, min(seeds, tasks) - 1)

    def decides(seeds: int, tasks: int) -> bool:
        return half_width(seeds, tasks) < abs(found.mean) and _least_p(tasks) <= level

    return Advice(
        half_width(found.seeds, found.tasks),
        _fewest(found.seeds, lambda seeds: decides(seeds, found.tasks)),
        _fewest(found.tasks, lambda tasks: decides(found.seeds, tasks)),
    )


def _fewest(start: int, suffices: Callable[[int], bool]) -> int | None:
    """Return the smallest practical number from ``start`` on that suffices, as all larger ones."""
    sizes = range(start, MOST_UNITS + 1)
    at = bisect_left(sizes, True, key=suffices)
    return sizes[at] if at < len(sizes) else None
