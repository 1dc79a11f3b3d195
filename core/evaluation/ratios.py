"""Rates whose denominator varies, as recovery after errors does, in a crossed design.

A cell (seed, task) without an error has no recovery: it is None and in no denominator. To the
first order such a rate is the mean of a linearised value per cell (Cochran, "Sampling Techniques",
3rd edition 1977, section 6.4), so that everything for crossed designs holds for it too.
"""

from collections.abc import Mapping

from core.evaluation.crossed import Outcomes

Sparse = Mapping[int, Mapping[str, float | None]]
"""``{run seed: {task id: value, or None where the cell does not count}}``."""


def sparse_differences(arm: Sparse, other: Sparse) -> dict[int, dict[str, float | None]]:
    """Return one arm's values minus another's, where both have one.

    Raises:
        ValueError: If they do not have the same seeds and tasks.
    """
    if sorted(arm) != sorted(other) or any(arm[one].keys() != other[one].keys() for one in arm):
        raise ValueError("paired arms need the same tasks under the same seeds")
    return {
        seed: {task: _difference(value, other[seed][task]) for task, value in tasks.items()}
        for seed, tasks in arm.items()
    }


def pooled_values(sparse: Sparse) -> Outcomes | None:
    """Return values whose mean is the mean over all cells that count.

    z = r + w (x − r) / w̄, with w 1 where a cell counts and 0 elsewhere, r = Σ w x / Σ w, and w̄ the
    share that counts. None where no cell counts.
    """
    found = [value for tasks in sparse.values() for value in tasks.values()]
    known = [value for value in found if value is not None]
    if not known:
        return None
    rate, share = sum(known) / len(known), len(known) / len(found)
    return {seed: _linear(tasks, rate, share) for seed, tasks in sparse.items()}


def seed_mean_values(sparse: Sparse) -> Outcomes | None:
    """Return values whose mean is the mean of the seeds' own means; other seeds are left out.

    None where no cell counts.
    """
    rows = {}
    for seed, tasks in sparse.items():
        known = [value for value in tasks.values() if value is not None]
        if known:
            rows[seed] = _linear(tasks, sum(known) / len(known), len(known) / len(tasks))
    return rows or None


def _linear(tasks: Mapping[str, float | None], rate: float, share: float) -> dict[str, float]:
    return {
        task: rate if value is None else rate + (value - rate) / share
        for task, value in tasks.items()
    }


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right
