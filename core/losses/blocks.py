"""One block of rows: from logits to the terms of each position, and the gradient of the logits.

Rows go in blocks small enough that the temporaries of a softmax do not count, in float32 or wider.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from core.losses.objective import Objective
from core.losses.options import ObjectiveOptions
from core.losses.registry import teacher_entropy
from core.losses.targets import BucketTargets, LogitTargets, SharedTargets, Targets
from core.losses.temperature import at_temperature


@dataclass(frozen=True)
class Terms:
    """What is evaluated at each position."""

    objective: Objective | None
    options: ObjectiveOptions
    nll_weight: float
    diagnostics: tuple[str, ...] = ()
    """Names of what the objective reports."""


@dataclass(frozen=True)
class Rows:
    """Inputs and results of a run of positions; a slice shares storage with the whole.

    Results are allocated once: a small tensor kept per block would sit between the freed blocks
    of a CPU heap, which then could not be used again.
    """

    targets: Targets | None
    target_ids_N: Tensor | None
    coefficients_N: Tensor
    """loss_scale·w/denominator: the factor of each position's gradient."""
    objective_N: Tensor
    divergence_N: Tensor
    nll_N: Tensor
    entropy_N: Tensor
    diagnostics_DN: Tensor
    """One row per name in ``Terms.diagnostics``."""

    def slice(self, start: int, stop: int) -> "Rows":
        """Return positions ``[start, stop)``, sharing storage.

        Args:
            start: First position.
            stop: One past the last.

        Returns:
            Rows of ``stop − start`` positions.
        """
        return Rows(
            None if self.targets is None else self.targets.slice(start, stop),
            None if self.target_ids_N is None else self.target_ids_N[start:stop],
            self.coefficients_N[start:stop],
            self.objective_N[start:stop],
            self.divergence_N[start:stop],
            self.nll_N[start:stop],
            self.entropy_N[start:stop],
            self.diagnostics_DN[:, start:stop],
        )


def evaluate_block(
    block_BV: Tensor, rows: Rows, terms: Terms, *, differentiate: bool
) -> Tensor | None:
    """Write the terms of a block's positions into ``rows``.

    Args:
        block_BV: Raw logits of the student.
        rows: The block's inputs and where its results go.
        terms: What is evaluated.
        differentiate: Also return the gradient.

    Returns:
        ∂(Σ coefficient·objective)/∂logits, or None.

    Raises:
        ValueError: The objective refuses its input.
    """
    with torch.set_grad_enabled(differentiate):
        # Upcast once: two terms would otherwise round their gradients to half precision apart.
        wide_BV = at_temperature(block_BV, 1.0).detach().requires_grad_(differentiate)
        objective_B = _objective(wide_BV, rows, terms)
        rows.objective_N.copy_(objective_B.detach())
        if not differentiate:
            return None
        coefficients_B = rows.coefficients_N.to(objective_B.dtype)
        (grad_BV,) = torch.autograd.grad(objective_B, wide_BV, coefficients_B)
    # 0 · inf is NaN: an unweighted row has no gradient whatever it holds.
    return grad_BV.masked_fill_((rows.coefficients_N == 0).unsqueeze(-1), 0.0)


def _objective(wide_BV: Tensor, rows: Rows, terms: Terms) -> Tensor:
    nll_B = wide_BV.new_zeros(())
    if terms.nll_weight > 0 and rows.target_ids_N is not None:
        nll_B = cross_entropy(wide_BV, rows.target_ids_N.long(), reduction="none")
        rows.nll_N.copy_(nll_B.detach())
    if terms.objective is None:
        return nll_B
    divergence_B, found = terms.objective.measure(rows.targets, wide_BV, terms.options)
    rows.divergence_N.copy_(divergence_B.detach())
    for name, row_B in zip(terms.diagnostics, rows.diagnostics_DN, strict=True):
        row_B.copy_(found[name])
    if isinstance(rows.targets, LogitTargets | SharedTargets | BucketTargets):
        with torch.no_grad():
            o = terms.options
            entropy_B = teacher_entropy(rows.targets, o.temperature, o.teacher_temperature)
            rows.entropy_N.copy_(entropy_B)
    if terms.nll_weight == 0:
        return divergence_B
    return (1.0 - terms.nll_weight) * divergence_B + terms.nll_weight * nll_B
