"""How far a student is from a frozen reference: recorded at every step, and never trained on."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from core.errors import NumericsError
from core.losses.chunked import selected_position_loss
from core.losses.targets import ExactTargets, Project
from core.models.backend import Backend
from core.models.batching import plan_physical
from core.recipe.runtime import Runtime
from core.training.group import Example, prediction_batch
from core.training.memory import ChunkSize

COLUMN = "reference_kl_mean"
"""Name of the number in the metrics row of a step."""


@torch.no_grad()
def reference_column(
    student: Backend,
    reference: Backend | None,
    examples: Sequence[Example],
    runtime: Runtime,
    chunk: ChunkSize,
) -> dict[str, float]:
    """Return the mean KL(student ‖ reference) over the selected positions of a step.

    Each position counts once, whatever its weight. The sum goes over the whole vocabulary, at
    temperature 1 and in float64: a divergence that begins at zero would otherwise begin in its own
    rounding.

    Args:
        student: The student before the step.
        reference: The frozen model; None measures nothing.
        examples: Trajectories of the step; at least one position is selected.
        runtime: Physical sizes.
        chunk: Positions that the loss projects at once; it shrinks when memory runs out.

    Returns:
        Nats by ``COLUMN``; nothing without a reference.

    Raises:
        NumericsError: A model's logits are not finite.
        MemoryExhaustedError: The smallest chunk does not fit.
    """
    if reference is None:
        return {}
    chosen = [example for example in examples if example.prediction_positions]
    plan = plan_physical([len(example.needed_ids) for example in chosen], runtime)

    def attempt(size: int) -> list[float]:
        values: list[float] = []
        for indices in plan:
            batch = [chosen[i] for i in indices]
            values += _divergences(student, reference, batch, size).tolist()
        return values

    values = chunk.run(attempt, lambda: None)
    mean = math.fsum(values) / len(values)
    if not math.isfinite(mean):
        raise _not_finite(chosen)
    return {COLUMN: mean}


def _divergences(
    student: Backend, reference: Backend, examples: Sequence[Example], chunk_size: int
) -> Tensor:
    """Return KL(student ‖ reference) at each selected position of one physical batch, ``[N]``."""
    batch = prediction_batch(student, examples)
    hidden_NH, frozen_NH = (
        batch.gather(model.hidden_states(batch.token_ids_BT, batch.lengths_B))
        for model in (student, reference)
    )
    try:
        output = selected_position_loss(
            hidden_NH,
            _wide(student.project),
            ExactTargets(frozen_NH, _wide(reference.project)),
            torch.ones(len(hidden_NH), dtype=torch.float64, device=student.device),
            # A float64 logit takes the room of two of the loss.
            chunk_size=max(1, chunk_size // 2),
            divergence="reverse_kl",
        )
    except ValueError as error:
        raise _not_finite(examples) from error
    assert output.divergence_N is not None, "there were targets"
    return output.divergence_N


def _wide(project: Project) -> Project:
    return lambda hidden_NH: project(hidden_NH).double()


def _not_finite(examples: Sequence[Example]) -> NumericsError:
    names = ", ".join(example.trajectory_id for example in examples)
    return NumericsError(
        f"the divergence from the reference is not finite, in one of {names}",
        "The step was not taken. Are the weights of models.reference whole? Lower the learning "
        "rate if the student's are not.",
    )
