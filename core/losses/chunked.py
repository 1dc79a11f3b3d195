"""One loss over selected positions, without ever holding all their logits.

Two stages, so that memory is O(chunk·V) and not O(N·V): each chunk of hidden states is detached,
projected, reduced to its gradient with respect to *hidden*, and dropped; only then does one pass
run back through the backbone. Within a chunk, rows go in small blocks (``core.losses.blocks``).

The gradient of a chunk's logits overwrites those logits where nothing else needs them, so an exact
divergence holds two [chunk, V] tensors: the teacher's and the student's.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from core.losses.blocks import Rows, Terms, evaluate_block
from core.losses.options import ObjectiveOptions
from core.losses.reduction import safe_denominator, weighted_mean
from core.losses.registry import objective_for
from core.losses.targets import (
    BucketTargets,
    ExactTargets,
    LogitTargets,
    Project,
    SampledTargets,
    SharedTargets,
    Targets,
)

BLOCK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 21}
"""Logits per block of rows: a few megabytes stay in a CPU's cache; a GPU wants longer kernels."""


@dataclass(frozen=True)
class LossOutput:
    """The loss of one selection and what it is made of; all detached."""

    loss: Tensor
    """Σ w·ℓ / denominator, a scalar."""
    num_positions: int
    total_weight: float
    objective_N: Tensor
    divergence_N: Tensor | None
    nll_N: Tensor | None
    teacher_entropy_N: Tensor | None
    grad_hidden_NH: Tensor | None
    """∂(loss·loss_scale)/∂hidden; None without ``backward``."""
    num_chunks: int
    diagnostics: dict[str, Tensor] = field(default_factory=dict)
    """What the objective reports beside its value, ``[N]`` each."""


def selected_position_loss(
    hidden_NH: Tensor,
    project: Project,
    targets: ExactTargets | LogitTargets | SharedTargets | BucketTargets | SampledTargets | None,
    weights_N: Tensor,
    *,
    chunk_size: int,
    divergence: str = "reverse_kl",
    temperature: float = 1.0,
    scale_by_temperature_squared: bool = True,
    teacher_weight: float = 0.5,
    tail_epsilon: float = 1e-9,
    nll_weight: float = 0.0,
    target_ids_N: Tensor | None = None,
    denominator: float | None = None,
    loss_scale: float = 1.0,
    backward: bool = False,
    **objective_parameters: Any,
) -> LossOutput:
    """Evaluate Σ w·((1−c)·divergence + c·NLL) / denominator and, if asked, its gradient.

    NLL is −log softmax(student)[target], never temperature scaled. Neither ``chunk_size`` nor the
    split of a group over calls with one ``denominator`` changes value or gradient.

    Args:
        hidden_NH: Student hidden states at the prediction positions.
        project: The student's head; a frozen one gets no gradient buffer.
        targets: The teacher's side, or None for NLL alone.
        weights_N: Non-negative weights.
        chunk_size: Rows projected at once.
        divergence: Name of a registered objective.
        temperature: τ of the divergence; targets taken at another τ are refused.
        scale_by_temperature_squared: Multiply the divergence by τ².
        teacher_weight: Weight of the teacher in the ``jsd`` mixture.
        tail_epsilon: Smallest probability of a tail bucket.
        nll_weight: c in [0, 1]; 1 without targets.
        target_ids_N: Sampled or demonstrated tokens; required where NLL is.
        denominator: Of the whole optimizer group; the sum of these weights by default.
        loss_scale: Multiplies gradients only.
        backward: Also differentiate: into ``grad_hidden_NH``, the head, and through ``hidden_NH``
            where it has a graph.
        objective_parameters: Further fields of ``ObjectiveOptions``.

    Returns:
        Value and per-position terms. An empty selection has loss 0 and touches nothing.

    Raises:
        ValueError: Counts differ, a weight is negative or not finite, ``chunk_size`` < 1,
            ``nll_weight`` outside [0, 1], target ids missing, or the objective refuses its input.
    """
    options = ObjectiveOptions(
        temperature=temperature,
        scale_by_temperature_squared=scale_by_temperature_squared,
        teacher_weight=teacher_weight,
        tail_epsilon=tail_epsilon,
        **objective_parameters,
    )
    terms = _terms(targets, divergence, options, nll_weight)
    _check(hidden_NH, targets, weights_N, target_ids_N, chunk_size, terms.nll_weight)
    total_weight = float(weights_N.double().sum())
    divisor = safe_denominator(total_weight if denominator is None else float(denominator))
    coefficients_N = weights_N.double() * (loss_scale / divisor)
    rows = _empty_rows(targets, target_ids_N, coefficients_N, terms)
    spans = list(_spans(hidden_NH.shape[0], chunk_size))
    grad_NH = _evaluate(hidden_NH, project, rows, terms, spans, backward=backward)
    dtype = torch.float64 if hidden_NH.dtype == torch.float64 else torch.float32
    return LossOutput(
        loss=weighted_mean(rows.objective_N, weights_N, divisor).to(dtype),
        num_positions=len(weights_N),
        total_weight=total_weight,
        grad_hidden_NH=grad_NH,
        num_chunks=len(spans),
        **_columns(rows, terms, dtype),
    )


def _empty_rows(
    targets: Targets | None, target_ids_N: Tensor | None, coefficients_N: Tensor, terms: Terms
) -> Rows:
    results = [torch.zeros_like(coefficients_N) for _ in range(4)]
    diagnostics_DN = coefficients_N.new_zeros(len(terms.diagnostics), len(coefficients_N))
    return Rows(targets, target_ids_N, coefficients_N, *results, diagnostics_DN=diagnostics_DN)


def _evaluate(
    hidden_NH: Tensor,
    project: Project,
    rows: Rows,
    terms: Terms,
    spans: Sequence[tuple[int, int]],
    *,
    backward: bool,
) -> Tensor | None:
    """Fill ``rows`` chunk by chunk; return ∂/∂hidden, run back where hidden has a graph."""
    grad_NH = torch.empty_like(hidden_NH) if backward else None
    for start, stop in spans:
        leaf_CH = hidden_NH.detach()[start:stop].requires_grad_(backward)
        _evaluate_chunk(leaf_CH, project, rows.slice(start, stop), terms)
        if grad_NH is not None and leaf_CH.grad is not None:
            grad_NH[start:stop] = leaf_CH.grad
    if grad_NH is not None and hidden_NH.requires_grad and spans:
        hidden_NH.backward(grad_NH)
    return grad_NH


def _columns(rows: Rows, terms: Terms, dtype: torch.dtype) -> dict[str, Any]:
    """Return the per-position results that the objective has."""
    has_entropy = not isinstance(rows.targets, SampledTargets | None)
    named = zip(terms.diagnostics, rows.diagnostics_DN.to(dtype), strict=True)
    return {
        "objective_N": rows.objective_N.to(dtype),
        "divergence_N": None if rows.targets is None else rows.divergence_N.to(dtype),
        "nll_N": rows.nll_N.to(dtype) if terms.nll_weight > 0 else None,
        "teacher_entropy_N": rows.entropy_N.to(dtype) if has_entropy else None,
        "diagnostics": dict(named),
    }


def _terms(
    targets: Targets | None, divergence: str, options: ObjectiveOptions, nll_weight: float
) -> Terms:
    if not 0.0 <= nll_weight <= 1.0:
        raise ValueError(f"nll_weight must lie in [0, 1], got {nll_weight}")
    if targets is None:
        return Terms(None, options, 1.0)
    kind = targets.read_as if isinstance(targets, ExactTargets) else type(targets)
    objective = objective_for(divergence, kind)
    return Terms(objective, options, nll_weight, objective.reported(kind, options))


def _check(
    hidden_NH: Tensor,
    targets: Targets | None,
    weights_N: Tensor,
    target_ids_N: Tensor | None,
    chunk_size: int,
    nll_weight: float,
) -> None:
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    if nll_weight > 0 and target_ids_N is None:
        raise ValueError("target_ids_N is required where the NLL has a weight")
    for name, part in (("targets", targets), ("weights", weights_N), ("target ids", target_ids_N)):
        if part is not None and len(part) != hidden_NH.shape[0]:
            raise ValueError(f"{hidden_NH.shape[0]} hidden states but {len(part)} {name}")
    if bool(((weights_N < 0) | ~weights_N.isfinite()).any()):
        raise ValueError("weights must be finite and non-negative")


def _spans(total: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, total, size):
        yield start, min(start + size, total)


def _evaluate_chunk(leaf_CH: Tensor, project: Project, rows: Rows, terms: Terms) -> None:
    logits_CV, is_reusable = _projected(leaf_CH, project)
    if isinstance(rows.targets, ExactTargets):
        rows = replace(rows, targets=rows.targets.read())
    plain_CV = logits_CV.detach()
    grad_CV = plain_CV if is_reusable else torch.empty_like(plain_CV)
    budget = BLOCK_ELEMENTS.get(logits_CV.device.type, BLOCK_ELEMENTS["cuda"])
    for start, stop in _spans(plain_CV.shape[0], max(1, budget // plain_CV.shape[1])):
        block_BV = plain_CV[start:stop]
        grad_BV = evaluate_block(
            block_BV, rows.slice(start, stop), terms, differentiate=leaf_CH.requires_grad
        )
        if grad_BV is not None:
            grad_CV[start:stop] = grad_BV
    if leaf_CH.requires_grad:
        torch.autograd.backward(logits_CV, grad_CV)


def _projected(leaf_CH: Tensor, project: Project) -> tuple[Tensor, bool]:
    """Return the chunk's logits, and whether its own gradient may overwrite them.

    It may unless they alias the hidden states (an identity head) or the head's backward pass reads
    its own output (a head that ends in tanh).
    """
    needed = {leaf_CH.untyped_storage().data_ptr()}

    def note(saved: Tensor) -> Tensor:
        needed.add(saved.untyped_storage().data_ptr())
        return saved

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved)
    with hooks, nullcontext() if leaf_CH.requires_grad else torch.no_grad():
        logits_CV = project(leaf_CH)
    return logits_CV, logits_CV.untyped_storage().data_ptr() not in needed
