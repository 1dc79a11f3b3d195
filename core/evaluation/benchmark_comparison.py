"""The comparisons of a benchmark, from its results alone: rates, effects, verdicts, advice.

All differences in success and all pooled differences in recovery are one family for Holm's
procedure. Arms whose every artifact is the same differ by nothing, and are outside it; so is a
difference in recovery over fewer than ten tasks, where linearised rates have no use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.evaluation.arm_comparison import (
    Advice,
    ArmComparison,
    Paired,
    compare_paired,
    pair_up,
    pooled_and_mean_rate,
)
from core.evaluation.benchmark_results import BenchmarkResults
from core.evaluation.crossed import ROUNDING, Outcomes
from core.evaluation.ratios import (
    Sparse,
    pooled_values,
    seed_mean_values,
    sparse_differences,
)
from core.evaluation.statistics import (
    MIN_SEEDS_FOR_POPULATION,
    Interval,
    hierarchical_bootstrap,
    wilson,
)

Json = dict[str, Any]

RESAMPLING_SEED = 0
COMPARISON = "comparison.json"
EQUAL = "equal byte for byte"
FEWEST_TASKS = 10
"""Tasks with an error in both arms, below which nothing is said of a difference in recovery."""


def compare_results(found: BenchmarkResults) -> Json:
    """Return every rate with its interval, and every comparison with its verdict."""
    document = found.document
    level = document["alpha"] / document["looks"]
    success, recovery = found.successes(), found.recoveries()
    arms = [one["name"] for one in document["arms"] if one["name"] in success]
    compared = _comparisons(document, success, recovery)
    seeds = min((len(row["seeds"]) for row in compared if row["seeds"]), default=0)
    return {
        "alpha": document["alpha"],
        "looks": document["looks"],
        "confidence": 1.0 - level,
        "scope": scope_words(seeds or len(document["seeds"]), len(document["seeds"])),
        "error_control": _control_words(document),
        "rates": [_rates(arm, success[arm], recovery[arm], 1.0 - level) for arm in arms],
        "comparisons": compared,
    }


def scope_words(seeds: int, planned: int) -> str:
    """Say what an interval over so many seeds is about, and whether more of them were planned."""
    some = "one seed" if seeds == 1 else f"{seeds} seeds"
    if seeds < planned:
        some = f"{seeds} of {planned} seeds so far"
    if seeds == 1:
        return f"{some}: no significance is claimed"
    if seeds < MIN_SEEDS_FOR_POPULATION:
        return (
            f"{some}: intervals and verdicts are for these seeds; from "
            f"{MIN_SEEDS_FOR_POPULATION} on they are about other seeds, too"
        )
    return f"{some}: intervals and verdicts are about other seeds and tasks like these"


def mean_interval(values: Outcomes, confidence: float) -> Interval:
    """Return the interval of a rate, within 0 and 1: crossed, or Wilson's where that has no width.

    A few seeds that differ widely have a Student's interval that reaches beyond what a rate can be.
    """
    plain = hierarchical_bootstrap(values, seed=RESAMPLING_SEED, confidence=confidence)
    if plain.upper - plain.lower > ROUNDING and len(values) > 1:
        return replace(plain, lower=max(plain.lower, 0.0), upper=min(plain.upper, 1.0))
    tasks = max(len(one) for one in values.values())
    rate = min(max(plain.estimate, 0.0), 1.0)
    exact = wilson(rate * tasks, tasks, confidence)
    return replace(exact, conditional_on_seeds=len(values) < MIN_SEEDS_FOR_POPULATION)


def _control_words(document: Json) -> str:
    alpha, looks = document["alpha"], document["looks"]
    if len(document["seeds"]) == 1:
        return "With one seed nothing is decided"
    words = (
        f"The chance of any false decision is at most {alpha:g} over all comparisons here (Holm)"
    )
    if looks == 1:
        missing = len(document.get("missing", ()))
        yet = f"; of its runs {missing} are missing" if missing else ""
        return f"{words}, if the results are looked at once, when everything has run{yet}"
    return (
        f"{words} and over {looks} looks: each look spends {alpha / looks:.3g} (Bonferroni), so "
        f"seeds may be added after any of them"
    )


def _rates(arm: str, success: Outcomes, recovery: Sparse, confidence: float) -> Json:
    interval = mean_interval(success, confidence)
    found = {
        "arm": arm,
        "seeds": len(success),
        "success": _interval(interval) | {"mean_of_seeds": pooled_and_mean_rate(success)[1]},
        "recovery": None,
    }
    values = pooled_values(recovery)
    if values is not None:
        errors = sum(value is not None for tasks in recovery.values() for value in tasks.values())
        found["recovery"] = _interval(_recovery_interval(recovery, values, confidence)) | {
            "mean_of_seeds": pooled_and_mean_rate(recovery)[1],
            "tasks_with_errors": _units(recovery),
            "pairs_with_errors": errors,
        }
    return found


def _recovery_interval(recovery: Sparse, values: Outcomes, confidence: float) -> Interval:
    """Return an interval within 0 and 1; Wilson's over tasks with errors where those are few."""
    plain = hierarchical_bootstrap(values, seed=RESAMPLING_SEED, confidence=confidence)
    units = _units(recovery)
    if units >= FEWEST_TASKS and plain.upper - plain.lower > ROUNDING and len(values) > 1:
        return replace(plain, lower=max(plain.lower, 0.0), upper=min(plain.upper, 1.0))
    rate = min(max(plain.estimate, 0.0), 1.0)
    exact = wilson(rate * units, units, confidence)
    return replace(exact, conditional_on_seeds=plain.conditional_on_seeds)


def _units(sparse: Sparse) -> int:
    """Return the number of tasks that count under some seed."""
    return len(
        {task for one in sparse.values() for task, value in one.items() if value is not None}
    )


def _interval(one: Interval) -> Json:
    return {
        "estimate": one.estimate,
        "lower": one.lower,
        "upper": one.upper,
        "conditional_on_seeds": one.conditional_on_seeds,
    }


def _comparisons(
    document: Json, success: Mapping[str, Outcomes], recovery: Mapping[str, Sparse]
) -> list[Json]:
    """Return the rows of the pairs whose both arms have results on a common seed."""
    rows: list[Json] = []
    family: list[Paired] = []
    for arm, against in document["comparisons"]:
        seeds = sorted(success.get(arm, {}).keys() & success.get(against, {}).keys())
        row = {"arm": arm, "against": against, "seeds": seeds}
        try:
            found = _pairs(arm, against, seeds, success, recovery)
        except ValueError as error:
            rows.append(row | {"measure": "success", "verdict": f"not compared: {error}"})
            continue
        for measure, pair in found.items():
            equal = any({arm, against} <= set(group) for group in document["identical"])
            if not equal and pair.units < FEWEST_TASKS and measure == "recovery":
                rows.append(row | {"measure": measure, "verdict": _too_few(pair)})
                continue
            rows.append(row | {"measure": measure, "identical": equal})
            if not equal:
                family.append(pair)
    decided = iter(compare_paired(family, RESAMPLING_SEED, document["alpha"], document["looks"]))
    return [_complete(row, decided, recovery, document) for row in rows]


def _pairs(
    arm: str,
    against: str,
    seeds: Sequence[int],
    success: Mapping[str, Outcomes],
    recovery: Mapping[str, Sparse],
) -> dict[str, Paired]:
    if not seeds:
        raise ValueError("no seed has results of both")
    common = {name: {seed: success[name][seed] for seed in seeds} for name in (arm, against)}
    found = {"success": pair_up(common, arm, against)}
    differences = _recovery_differences(arm, against, seeds, recovery)
    values = pooled_values(differences)
    if values is not None:
        cells = [
            value for one in differences.values() for value in one.values() if value is not None
        ]
        found["recovery"] = Paired(arm, against, values, cells, _units(differences))
    return found


def _too_few(pair: Paired) -> str:
    tasks = "1 task" if pair.units == 1 else f"{pair.units} tasks"
    return f"not compared: {tasks} with an error in both, fewer than {FEWEST_TASKS}"


def _recovery_differences(
    arm: str, against: str, seeds: Sequence[int], recovery: Mapping[str, Sparse]
) -> Sparse:
    mine, theirs = ({seed: recovery[one][seed] for seed in seeds} for one in (arm, against))
    return sparse_differences(mine, theirs)


def _complete(row: Json, decided: Any, recovery: Mapping[str, Sparse], document: Json) -> Json:
    if "identical" not in row:
        return row
    if row["identical"]:
        zero = {"effect": 0.0, "lower": 0.0, "upper": 0.0, "p_value": None, "decided": None}
        return row | zero | {"verdict": EQUAL, "advice": None}
    found: ArmComparison = next(decided)
    advice = found.advice
    complete = row | {
        "effect": found.effect.estimate,
        "lower": max(found.effect.lower, -1.0),  # rates differ by no more
        "upper": min(found.effect.upper, 1.0),
        "conditional_on_seeds": found.effect.conditional_on_seeds,
        "p_value": found.p_value,
        "decided": found.decided,
        "wins": found.wins,
        "losses": found.losses,
        "ties": found.ties,
        "verdict": found.verdict,
        "advice": _advice(advice, row) if advice is not None else None,
    }
    if row["measure"] == "recovery":
        complete["mean_of_seeds"] = _seed_mean(row, recovery, document)
    return complete


def _seed_mean(row: Json, recovery: Mapping[str, Sparse], document: Json) -> Json | None:
    """Return the mean over seeds of the difference, which weighs every seed alike."""
    values = seed_mean_values(
        _recovery_differences(row["arm"], row["against"], row["seeds"], recovery)
    )
    if values is None:
        return None
    level = document["alpha"] / document["looks"]
    return _interval(
        hierarchical_bootstrap(values, seed=RESAMPLING_SEED, confidence=1.0 - level)
    ) | {"seeds": len(values)}


def _advice(advice: Advice, row: Json) -> Json:
    """Return how much more would decide it, in words and numbers."""
    numbers = {
        "detectable": advice.detectable,
        "seeds_needed": advice.seeds_needed,
        "tasks_needed": advice.tasks_needed,
    }
    if advice.detectable == 0.0:
        return numbers | {"words": "no pair differed from another, so nothing says how many would"}
    ways = []
    if advice.seeds_needed is not None:
        ways.append(f"{advice.seeds_needed} seeds in all with these tasks")
    if advice.tasks_needed is not None:
        ways.append(f"{advice.tasks_needed} tasks in all with these {len(row['seeds'])} seeds")
    would = f"{' or '.join(ways)} would decide a difference of this size" if ways else ""
    return numbers | {
        "words": f"{_about(row)}differences below {100 * advice.detectable:.1f} points cannot be "
        "told from 0; "
        + (would or "no practical number of seeds or tasks would decide one of this size"),
    }


def _about(row: Json) -> str:
    """Advice is about other seeds, too, where the interval beside it is not."""
    return "for other seeds, too, " if len(row["seeds"]) < MIN_SEEDS_FOR_POPULATION else ""
