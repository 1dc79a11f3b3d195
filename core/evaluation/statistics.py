"""Intervals and tests for success rates.

The design of an experiment here is crossed: the same tasks recur under every seed. Resampling
(seed, task) pairs as if they were independent understates the uncertainty;
``hierarchical_bootstrap`` resamples both factors.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from core.evaluation.crossed import components, outcome_matrix
from core.evaluation.student_t import t_quantile
from core.seeding import derive_seed

MIN_SEEDS_FOR_POPULATION = 5
"""Below this many seeds an interval is conditional on the seeds at hand."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its lower and upper bound, and how many observations it rests on."""

    estimate: float
    lower: float
    upper: float
    count: int
    conditional_on_seeds: bool = False


def wilson(successes: float, trials: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a proportion.

    (p + z²/2n ± z·sqrt(p(1−p)/n + z²/4n²)) / (1 + z²/n): Wilson, "Probable inference, the law of
    succession, and statistical inference", JASA 22 (1927).

    Args:
        successes: Between 0 and ``trials``; a fraction where trials are means of repeats.
        trials: At least 1.
        confidence: Coverage, in (0, 1).

    Raises:
        ValueError: If the counts are not a proportion or the confidence is not in (0, 1).
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} of {trials} is not a proportion")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is not in (0, 1)")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    lower = 0.0 if successes == 0 else centre - half
    upper = 1.0 if successes == trials else centre + half
    return Interval(rate, lower, upper, trials)


def _percentile_interval(
    estimate: float, draws: list[float], confidence: float, count: int
) -> Interval:
    draws.sort()
    tail = (1 - confidence) / 2
    lower = draws[int(tail * len(draws))]
    upper = draws[max(int((1 - tail) * len(draws)) - 1, 0)]
    return Interval(estimate, lower, upper, count)


def paired_bootstrap(
    differences: Sequence[float], *, seed: int, resamples: int = 10_000, confidence: float = 0.95
) -> Interval:
    """Return the percentile interval of the mean of paired differences.

    Args:
        differences: One number per pair, in a fixed order.
        seed: Of the private generator.
        resamples: Number of bootstrap means.
        confidence: Coverage, in (0, 1).

    Raises:
        ValueError: If there are no pairs or no resamples.
    """
    if not differences or resamples < 1:
        raise ValueError("paired_bootstrap needs at least one pair and one resample")
    rng = random.Random(seed)
    count = len(differences)
    draws = [
        sum(differences[rng.randrange(count)] for _ in range(count)) / count
        for _ in range(resamples)
    ]
    return _percentile_interval(sum(differences) / count, draws, confidence, count)


def hierarchical_bootstrap(
    outcomes: Mapping[int, Mapping[str, float]],
    *,
    seed: int,
    resamples: int | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return an interval of the mean over a crossed design, resampling seeds and tasks.

    Seeds and tasks are drawn independently of each other (Owen, "The pigeonhole bootstrap", Ann.
    Appl. Stat. 1 (2007)). The spread of such means is wrong in two ways: it counts the rest's
    variance up to three times, and with few seeds it is too narrow. So the draws are stretched
    about the estimate until their standard deviation is the standard error of the variance
    components and their tails are Student's. The asymmetry of the draws stays.

    With fewer than five seeds only the tasks are resampled, and the interval is marked as
    conditional on the seeds; its draws are stretched to the standard error over tasks.

    Args:
        outcomes: ``{run seed: {task id: value}}``; every seed must have the same tasks.
        seed: Of the private generator.
        resamples: Number of bootstrap means; None is 50 in each tail, and from 2,000 to 50,000.
        confidence: Coverage, in (0, 1).

    Raises:
        ValueError: If the design is empty or not crossed, a value is not finite, the confidence is
            not in (0, 1), or there are no resamples.
    """
    values_ST = outcome_matrix(outcomes)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is not in (0, 1)")
    if resamples is None:
        resamples = min(max(math.ceil(100 / (1 - confidence)), 2_000), 50_000)
    if resamples < 1:
        raise ValueError("hierarchical_bootstrap needs at least one resample")
    conditional = len(values_ST) < MIN_SEEDS_FOR_POPULATION
    generator = np.random.default_rng(derive_seed(seed, "hierarchical_bootstrap"))
    tasks_RT = _resampled(generator, values_ST.shape[1], resamples)
    if conditional:
        draws_R = tasks_RT @ values_ST.mean(axis=0)
    else:
        seeds_RS = _resampled(generator, len(values_ST), resamples)
        draws_R = np.einsum("rs,rs->r", seeds_RS, tasks_RT @ values_ST.T)
    estimate = float(values_ST.mean())
    stretch = _stretch(values_ST, draws_R, confidence, conditional=conditional)
    draws = [estimate + stretch * (float(draw) - estimate) for draw in draws_R]
    plain = _percentile_interval(estimate, draws, confidence, values_ST.size)
    return Interval(plain.estimate, plain.lower, plain.upper, plain.count, conditional)


def _resampled(generator: np.random.Generator, size: int, resamples: int) -> np.ndarray:
    """Return the shares, [resamples, size], of each unit among as many drawn with replacement."""
    return generator.multinomial(size, np.full(size, 1.0 / size), resamples) / size


def _stretch(
    values_ST: np.ndarray, draws_R: np.ndarray, confidence: float, *, conditional: bool
) -> float:
    """Return the factor from the draws' spread to the standard error with Student's tails.

    Where one task is all there is, or nothing varies, there is nothing to stretch.
    """
    spread, tasks = float(draws_R.std()), values_ST.shape[1]
    if tasks < 2 or spread == 0.0:
        return 1.0
    if conditional:
        error, degrees = float(values_ST.mean(axis=0).std(ddof=1)) / math.sqrt(tasks), tasks - 1.0
    else:
        found = components(values_ST)
        error, degrees = found.standard_error, found.degrees
    if degrees == 0.0:
        return 1.0
    normal = NormalDist().inv_cdf(0.5 + confidence / 2)
    return error / spread * t_quantile(confidence, degrees) / normal


def holm(p_values: Mapping[str, float], alpha: float = 0.05) -> dict[str, bool]:
    """Return which hypotheses are rejected with family-wise error at most ``alpha``.

    Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6 (1979).

    Args:
        p_values: Name of each hypothesis and its p value.
        alpha: Family-wise error rate.

    Raises:
        ValueError: If a p value is not in [0, 1].
    """
    if any(not 0.0 <= p <= 1.0 for p in p_values.values()):
        raise ValueError("every p value must lie in [0, 1]")
    rejected: dict[str, bool] = {}
    still = True
    for rank, name in enumerate(sorted(p_values, key=lambda key: (p_values[key], key))):
        still = still and p_values[name] <= alpha / (len(p_values) - rank)
        rejected[name] = still
    return rejected
