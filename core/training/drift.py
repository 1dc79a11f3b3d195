"""How far the model that learns is from the one that sampled, with the same weights.

Sampling goes token by token through a cache, training through one pass over the row. In exact
arithmetic both give a token one log-probability. What is left is rounding: none to speak of in
float32, visible in bfloat16, and an off-policy error where it is large.
"""

import math
from collections.abc import Sequence

from core.training.group import Example
from core.trajectory.trajectory import Trajectory

DIGITS = 6
"""Digits kept after the point: below a millionth of a nat the order of sums decides."""
COLUMNS = ("sampler_drift_mean", "sampler_drift_max")
"""Names of the two numbers in the first metrics row of an update."""


def sampler_temperature(trajectories: Sequence[Trajectory]) -> float:
    """Return what divided the logits of the recorded log-probabilities.

    Greedy episodes record the model's own log-probabilities, at 1.
    """
    written = trajectories[0].metadata.get("temperature") if trajectories else None
    return float(written or 1.0)


def sampler_drift(
    trajectories: Sequence[Trajectory],
    examples: Sequence[Example],
    logprobs_N: Sequence[float],
    parameter_version: int,
) -> dict[str, float]:
    """Compare log-probabilities of sampled tokens with those that the sampler recorded.

    Args:
        trajectories: The episodes.
        examples: The same, with the positions that are trained.
        logprobs_N: The training pass's log-probabilities of the targets, nats, in that order.
        parameter_version: Of the weights in that pass.

    Returns:
        Mean and maximum of the absolute difference, nats, by ``COLUMNS``; nothing where other
        weights sampled an episode, or nobody did.
    """
    fresh = all(one.logprobs and one.policy_version == parameter_version for one in trajectories)
    recorded = [
        known[position + 1]
        for trajectory, example in zip(trajectories, examples, strict=True)
        for known in [_recorded(trajectory) if fresh else {}]
        for position in (example.prediction_positions if fresh else ())
    ]
    if not recorded:
        return {}
    apart = [abs(own - theirs) for own, theirs in zip(logprobs_N, recorded, strict=True)]
    values = (math.fsum(apart) / len(apart), max(apart))
    return {name: round(value, DIGITS) for name, value in zip(COLUMNS, values, strict=True)}


def _recorded(trajectory: Trajectory) -> dict[int, float]:
    """Return log-probabilities before truncation by position of the token."""
    written = [position for position, own in enumerate(trajectory.model_mask) if own]
    kept = trajectory.kept_mass or [1.0] * len(written)
    return {
        position: logprob + math.log(mass)
        for position, logprob, mass in zip(written, trajectory.logprobs, kept, strict=True)
    }
