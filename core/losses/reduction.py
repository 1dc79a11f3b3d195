"""From one number per position to one number per optimizer step.

A reduction is a weight per position and one denominator for the whole optimizer group. Both come
from the targets, never from a physical batch, so no split into micro-batches can change the
objective: every micro-batch adds Σ w·ℓ over its own positions, divided by the *group's* one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EMPTY_DENOMINATOR = 1e-12
"""Stands in for a denominator of exactly zero, so that an empty selection has loss 0."""

AGGREGATIONS = ("native_per_trajectory", "token-mean")


@dataclass(frozen=True)
class Reduction:
    """Weights per trajectory and position, and what their weighted sum is divided by."""

    weights: list[list[float]]
    denominator: float


def weighted_mean(values_N: Tensor, weights_N: Tensor, denominator: float | None = None) -> Tensor:
    """Return Σ w·x / D, accumulated in float64.

    Args:
        values_N: Numbers to average.
        weights_N: Non-negative weights, same shape.
        denominator: D; the sum of the weights by default. Exactly 0 counts as 1e-12.

    Returns:
        A scalar, float64 for float64 values and float32 otherwise. Positions of weight 0 do not
        enter, whatever their value.

    Raises:
        ValueError: Shapes differ.
    """
    if values_N.shape != weights_N.shape:
        raise ValueError(f"{tuple(values_N.shape)} values but {tuple(weights_N.shape)} weights")
    weights_N = weights_N.double()
    # Masked before the product: a non-finite value at weight 0 must not reach the sum.
    kept_N = values_N.double().masked_fill(weights_N == 0, 0.0)
    divisor = float(weights_N.sum()) if denominator is None else float(denominator)
    mean = (kept_N * weights_N).sum() / safe_denominator(divisor)
    return mean if values_N.dtype == torch.float64 else mean.float()


def safe_denominator(denominator: float) -> float:
    """Return the denominator, or 1e-12 for exactly zero.

    Args:
        denominator: Sum of weights, or a count.

    Returns:
        A number to divide by.

    Raises:
        ValueError: Negative or not finite.
    """
    if not math.isfinite(denominator) or denominator < 0:
        raise ValueError(f"denominator must be finite and non-negative, got {denominator}")
    return denominator if denominator > 0 else EMPTY_DENOMINATOR


def normalize_trajectory_weights(weights: Sequence[Sequence[float]]) -> list[list[float]]:
    """Scale each trajectory's weights to sum to one; a trajectory of weight zero stays zero.

    Args:
        weights: One row of non-negative weights per trajectory.

    Returns:
        Rows of the same lengths.

    Raises:
        ValueError: A weight is negative or not finite.
    """
    return [_normalized(row, index) for index, row in enumerate(weights)]


def reduce_group(weights: Sequence[Sequence[float]], aggregation: str) -> Reduction:
    """Turn the selection weights of one optimizer group into its reduction.

    ``token-mean`` weighs every position alike: D = Σ w. ``native_per_trajectory`` weighs every
    trajectory alike, long or short: rows sum to one and D is the number of trajectories that
    contribute. A trajectory without a selected position is in neither denominator.

    Args:
        weights: One row of selection weights per trajectory of the group.
        aggregation: ``native_per_trajectory`` or ``token-mean``.

    Returns:
        The group's weights and denominator.

    Raises:
        ValueError: Unknown aggregation, or a weight is negative or not finite.
    """
    normalized = normalize_trajectory_weights(weights)
    if aggregation == "native_per_trajectory":
        contributing = sum(1 for row in normalized if any(row))
        return Reduction(normalized, float(contributing))
    if aggregation == "token-mean":
        rows = [[float(weight) for weight in row] for row in weights]
        return Reduction(rows, math.fsum(weight for row in rows for weight in row))
    raise ValueError(f"aggregation {aggregation!r} is not one of {', '.join(AGGREGATIONS)}")


def _normalized(row: Sequence[float], index: int) -> list[float]:
    if any(not math.isfinite(weight) or weight < 0 for weight in row):
        raise ValueError(f"trajectory {index} has a weight that is negative or not finite")
    total = math.fsum(row)
    return [weight / total if total > 0 else 0.0 for weight in row]
