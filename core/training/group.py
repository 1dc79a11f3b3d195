"""One optimizer group: the gradient of its objective, over any number of physical batches.

Weights and the denominator come from the whole group before the first forward pass, so neither
padding nor the split into batches, nor the chunk size, changes the objective.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from core.errors import NumericsError
from core.losses.chunked import LossOutput, selected_position_loss
from core.losses.reduction import Reduction, reduce_group, weighted_mean
from core.losses.targets import BucketTargets, ExactTargets, SampledTargets
from core.models.backend import Backend
from core.models.batching import PaddedBatch, needed_tokens, pad_batch, plan_physical
from core.recipe.runtime import Runtime
from core.training.memory import ChunkSize

Targets = BucketTargets | ExactTargets | SampledTargets | None
GatherTargets = Callable[[Sequence[int]], Targets]
"""Targets of some examples of a group, in the given order."""


@dataclass(frozen=True)
class Example:
    """One trajectory with the positions that are trained."""

    trajectory_id: str
    token_ids: Sequence[int]
    prediction_positions: Sequence[int]
    """Positions whose logits predict the targets, ascending."""
    target_ids: Sequence[int]
    """The target tokens."""
    weights: Sequence[float]
    """Selection weights."""
    span_types: Sequence[str]
    """Span of each target token."""
    is_whole: bool = True
    """Whether it is the last or only branch of its episode."""

    @property
    def needed_ids(self) -> Sequence[int]:
        """Tokens that the predictions depend on."""
        return needed_tokens(self.token_ids, self.prediction_positions)


@dataclass(frozen=True)
class Objective:
    """What is minimised at a position, and how positions are averaged."""

    aggregation: str
    """``native_per_trajectory`` or ``token-mean``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``selected_position_loss``; none of them for plain cross-entropy."""


@dataclass(frozen=True)
class PositionTerms:
    """Per-position results of one trajectory, detached."""

    objective: Tensor
    divergence: Tensor | None
    nll: Tensor | None
    teacher_entropy: Tensor | None
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict)
    """What the objective reports beside its value."""


@dataclass(frozen=True)
class GroupLoss:
    """The objective of one group; its gradient lies in the parameters."""

    loss: float
    reduction: Reduction
    terms: tuple[PositionTerms, ...]
    """One per example."""
    num_batches: int
    """Physical batches."""
    padded_rows: int
    """Rows of the largest one."""

    @property
    def selected_positions(self) -> int:
        """Positions that were selected, whatever their weight."""
        return sum(len(row) for row in self.reduction.weights)

    def mean(self, name: str) -> float | None:
        """Return the weighted mean of a per-position term, or None where it was not computed."""
        columns = [getattr(terms, name) for terms in self.terms]
        if any(column is None for column in columns):
            return None
        return self._mean(columns)

    def diagnostics(self) -> dict[str, float]:
        """Return the weighted mean of each thing that the objective reports."""
        names = self.terms[0].diagnostics if self.terms else ()
        return {
            name: self._mean([terms.diagnostics[name] for terms in self.terms]) for name in names
        }

    def _mean(self, columns: list[Tensor]) -> float:
        weights = [weight for row in self.reduction.weights for weight in row]
        weights_N = torch.tensor(weights, dtype=torch.float64)
        return float(weighted_mean(torch.cat(columns), weights_N, self.reduction.denominator))


def accumulate(
    backend: Backend,
    examples: Sequence[Example],
    gather_targets: GatherTargets,
    objective: Objective,
    runtime: Runtime,
    chunk: ChunkSize,
    row_seeds: Sequence[int] | None = None,
) -> GroupLoss:
    """Put the gradient of a group's objective, and nothing else, into the parameters.

    Args:
        backend: The model.
        examples: Trajectories of one optimizer step.
        gather_targets: Teacher's side of some examples; returns None for cross-entropy.
        objective: What is minimised.
        runtime: Physical sizes.
        chunk: Positions projected at once; it shrinks when memory runs out.
        row_seeds: Seeds of each example's dropout; None drops nothing.

    Returns:
        Loss and per-position terms.

    Raises:
        NumericsError: Loss or gradient is not finite; gradients are cleared.
        MemoryExhaustedError: The smallest chunk does not fit.
    """
    # What an attempt that was cut short left behind would be added to this step's gradient.
    clear_gradients(backend)
    reduction = reduce_group([example.weights for example in examples], objective.aggregation)
    plan = plan_physical([len(example.needed_ids) for example in examples], runtime)

    def attempt(chunk_size: int) -> list[LossOutput]:
        outputs = []
        for indices in plan:
            with _dropping(backend, row_seeds, indices):
                batch = _backward_batch(
                    backend,
                    [examples[i] for i in indices],
                    gather_targets(indices),
                    Reduction([reduction.weights[i] for i in indices], reduction.denominator),
                    {**objective.options, "chunk_size": chunk_size},
                )
            outputs.append(batch)
        return outputs

    try:
        outputs = chunk.run(attempt, lambda: clear_gradients(backend))
    except BaseException:
        clear_gradients(backend)
        raise
    backend.check_gradients()
    for indices, output in zip(plan, outputs, strict=True):
        weights = [weight for i in indices for weight in reduction.weights[i]]
        broken = _first_non_finite(output, weights)
        if broken is not None:
            clear_gradients(backend)
            raise _non_finite([examples[i] for i in indices], broken)
    return GroupLoss(
        loss=math.fsum(float(output.loss) for output in outputs),
        reduction=reduction,
        terms=_terms_by_example(examples, plan, outputs),
        num_batches=len(plan),
        padded_rows=max(len(indices) for indices in plan),
    )


def _dropping(
    backend: Backend, row_seeds: Sequence[int] | None, indices: Sequence[int]
) -> AbstractContextManager[None]:
    return nullcontext() if row_seeds is None else backend.dropout([row_seeds[i] for i in indices])


def clear_gradients(backend: Backend) -> None:
    """Forget the gradients of all trainable parameters."""
    for parameter in backend.trainable().values():
        parameter.grad = None


def prediction_batch(backend: Backend, examples: Sequence[Example]) -> PaddedBatch:
    """Pad examples; the selected positions are those that *predict* the targets."""
    return pad_batch(
        [example.needed_ids for example in examples],
        [example.prediction_positions for example in examples],
        backend.tokenizer.pad_id,
        backend.device,
    )


def _backward_batch(
    backend: Backend,
    examples: Sequence[Example],
    targets: Targets,
    reduction: Reduction,
    options: Mapping[str, Any],
) -> LossOutput:
    batch = prediction_batch(backend, examples)
    hidden_BTH = backend.hidden_states(batch.token_ids_BT, batch.lengths_B)
    weights = [weight for row in reduction.weights for weight in row]
    target_ids = [token for example in examples for token in example.target_ids]
    try:
        return selected_position_loss(
            batch.gather(hidden_BTH),
            backend.project,
            targets,
            torch.tensor(weights, dtype=torch.float64, device=backend.device),
            target_ids_N=torch.tensor(target_ids, dtype=torch.int64, device=backend.device),
            denominator=reduction.denominator,
            backward=True,
            **options,
        )
    except ValueError as error:
        names = ", ".join(example.trajectory_id for example in examples)
        raise NumericsError(
            f"the loss refuses its input, in one of {names}: {error}",
            "The step was not committed. Lower the learning rate, or look at these episodes.",
        ) from error


def _first_non_finite(output: LossOutput, weights: Sequence[float]) -> int | None:
    """Return the first weighted position whose objective or gradient is not finite."""
    finite_N = output.objective_N.isfinite()
    if output.grad_hidden_NH is not None:
        finite_N = finite_N & output.grad_hidden_NH.isfinite().all(-1)
    if bool(finite_N.all()):
        return None
    broken = (
        index
        for index, (finite, weight) in enumerate(zip(finite_N.tolist(), weights, strict=True))
        if weight > 0 and not finite
    )
    return next(broken, None)


def _non_finite(examples: Sequence[Example], broken: int) -> NumericsError:
    places = [
        (example, n) for example in examples for n in range(len(example.prediction_positions))
    ]
    example, position = places[broken]
    return NumericsError(
        f"loss or gradient is not finite at position {example.prediction_positions[position]} "
        f"({example.span_types[position]}) of {example.trajectory_id}",
        "The step was not committed. Lower the learning rate, or look at that episode.",
    )


def _terms_by_example(
    examples: Sequence[Example],
    plan: Sequence[Sequence[int]],
    outputs: Sequence[LossOutput],
) -> tuple[PositionTerms, ...]:
    found: dict[int, PositionTerms] = {}
    for indices, output in zip(plan, outputs, strict=True):
        start = 0
        for index in indices:
            own = slice(start, start + len(examples[index].prediction_positions))
            found[index] = PositionTerms(
                objective=output.objective_N[own].cpu(),
                divergence=_cut(output.divergence_N, own),
                nll=_cut(output.nll_N, own),
                teacher_entropy=_cut(output.teacher_entropy_N, own),
                diagnostics={name: row[own].cpu() for name, row in output.diagnostics.items()},
            )
            start = own.stop
    return tuple(found[index] for index in range(len(examples)))


def _cut(column_N: Tensor | None, own: slice) -> Tensor | None:
    return None if column_N is None else column_N[own].cpu()
