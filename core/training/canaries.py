"""Self-tests before the first update of a run: does this training signal come from this teacher?

Most silent failures of distillation leave the loss falling: teacher data dropped, the wrong
variable used, a teacher built from the live student, a trainable base model. Each of these trips
one of the checks here, on the first real batch and without moving a parameter.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from core.errors import CanaryError
from core.losses.buckets import top_k_targets
from core.losses.laws import Laws
from core.losses.registry import objective_for
from core.losses.sampled import sampled_log_probs
from core.losses.targets import BucketTargets, ExactTargets, SampledTargets, TokenPairs
from core.models.backend import Backend
from core.models.tensor_files import tensors_digest
from core.models.tokenizer import generation_prompts_differ
from core.recipe.runtime import Runtime
from core.recipe.training_specs import UpdateSpec
from core.teacher.targets import ScoredTargets
from core.training.group import (
    Example,
    GatherTargets,
    GroupLoss,
    Objective,
    accumulate,
    clear_gradients,
    prediction_batch,
)
from core.training.memory import ChunkSize
from core.training.state import StudentState
from core.training.update import check_targets, group_targets, objective_of, paired_examples
from core.trajectory.trajectory import Trajectory

logger = logging.getLogger(__name__)

MAX_TRAJECTORIES = 8
IDENTITY_TOLERANCE = 1e-5
"""Largest divergence, nats, of a model from itself: rounding of a float32 softmax."""
LOSS_DIFFERENCE = 1e-6
"""Smallest change of the loss, nats, that counts as one."""
FLATNESS = 0.05
"""Largest gradient norm against oneself, as a share of that against the teacher. A gradient grows
with the root of a divergence: rounding far below ``IDENTITY_TOLERANCE`` is a per cent here."""


@dataclass(frozen=True)
class _Batch:
    """What the checks share."""

    backend: Backend
    examples: Sequence[Example]
    objective: Objective
    runtime: Runtime

    def loss(self, gather: GatherTargets) -> tuple[GroupLoss, dict[str, float]]:
        """Return the loss against some targets and the gradient norm of each parameter."""
        runtime = self.runtime
        chunk = ChunkSize(runtime.chunk_size, runtime.oom_retries, runtime.min_chunk_size)
        group = accumulate(self.backend, self.examples, gather, self.objective, runtime, chunk)
        norms = {
            name: 0.0 if p.grad is None else float(p.grad.norm())
            for name, p in self.backend.trainable().items()
        }
        clear_gradients(self.backend)
        return group, norms


def check_canaries(
    backend: Backend,
    state: StudentState,
    trajectories: Sequence[Trajectory],
    scored: ScoredTargets,
    spec: UpdateSpec,
    runtime: Runtime,
    *,
    teacher: Backend | None = None,
) -> dict[str, Any]:
    """Run the checks on the first trajectories with a selected position; nothing is changed.

    Args:
        backend: The student; it is left with the weights of ``state``.
        state: Its state.
        trajectories: Its episodes.
        scored: What the teacher said about them.
        spec: The update that will follow.
        runtime: Physical sizes.
        teacher: The model that scored; exact targets need its head.

    Returns:
        What was measured, for the report. A teacher whose template begins replies in another way
        is named there and warned of, and not refused: it may be wanted.

    Raises:
        CanaryError: A check failed; the message says which and what it suggests.
        AlignmentError: The targets belong to other trajectories or tokens.
        BackendError: The targets cannot be read by this loss, or gradients through quantised layers
            are not those of their weights.
    """
    check_targets(scored, spec, teacher)
    examples = paired_examples(trajectories, scored)
    indices = [i for i, example in enumerate(examples) if any(example.weights)]
    indices = indices[:MAX_TRAJECTORIES]
    if not indices:
        return {"checked_trajectories": 0}
    backend.load_trainable(state.tensors)
    frozen = backend.frozen_digest()
    batch = _Batch(backend, [examples[i] for i in indices], objective_of(spec), runtime)
    gather = group_targets(backend, scored, indices, teacher)
    real, norms = batch.loss(gather)
    other, _ = batch.loss(lambda chosen: another_teacher(gather(chosen), backend.vocab_size))
    own, own_norms = _itself(batch, spec).loss(_own_targets(batch, gather, spec.temperature))
    found = {
        "checked_trajectories": len(indices),
        "loss": real.loss,
        "loss_with_another_teacher": other.loss,
        "largest_divergence": _largest(real),
        "divergence_from_itself": _largest(own),
        "gradient_norm": math.hypot(*norms.values()),
        "gradient_norm_from_itself": math.hypot(*own_norms.values()),
        "parameters": len(norms),
        "parameters_without_gradient": sorted(name for name, norm in norms.items() if norm == 0.0),
        "frozen_digest": frozen,
        "student_dropped_mass": backend.dropped_mass,
        "teacher_dropped_mass": None if teacher is None else teacher.dropped_mass,
        "generation_prompts_differ": _compared_prompts(backend, teacher),
    }
    quantised = backend.gradient_check()
    if quantised is not None:
        found["quantised_gradients"] = asdict(quantised)
    _judge_gradient(found, _waiting_for_b(backend))
    if spec.nll_weight < 1.0:  # at 1 the objective has no teacher to be judged
        _judge_teacher(found)
        _judge_identity(found, _laws(spec, gather([0])))
    if backend.frozen_digest() != frozen or _trainable_digest(backend) != state.digest():
        raise CanaryError(
            "computing a gradient changed a parameter",
            "A parameter is updated outside the optimizer; this is a defect, please report it.",
        )
    return found


def _compared_prompts(student: Backend, teacher: Backend | None) -> bool:
    if teacher is None or not generation_prompts_differ(student.tokenizer, teacher.tokenizer):
        return False
    logger.warning(
        "the teacher's own template begins a reply in another way than the student's: the first "
        "tokens of each turn differ for that reason; selection.skip_first_tokens leaves them out"
    )
    return True


def another_teacher(
    targets: BucketTargets | ExactTargets | SampledTargets | None, vocab_size: int
) -> BucketTargets | ExactTargets | SampledTargets | None:
    """Return targets of a teacher that prefers other tokens at every position."""
    if isinstance(targets, SampledTargets):
        return replace(targets, teacher_logprobs_N=targets.teacher_logprobs_N - 1.0)
    if isinstance(targets, BucketTargets):
        return replace(targets, support_ids_NK=(targets.support_ids_NK + 1) % vocab_size)
    if isinstance(targets, ExactTargets):
        return replace(targets, teacher_hidden_NH=-targets.teacher_hidden_NH)
    return targets


def _itself(batch: _Batch, spec: UpdateSpec) -> _Batch:
    """Return the batch under the divergence alone, at one temperature.

    At two, no model equals itself; and the NLL's share of the gradient vanishes nowhere.
    """
    changes = {"teacher_temperature": None, "nll_weight": 0.0}
    return replace(batch, objective=objective_of(spec.model_copy(update=changes)))


def _own_targets(
    batch: _Batch, gather: GatherTargets, temperature: float
) -> Callable[[Sequence[int]], Any]:
    """Return a lookup of what the student itself would say as a teacher."""

    @torch.no_grad()
    def own(chosen: Sequence[int]) -> BucketTargets | ExactTargets | SampledTargets:
        backend = batch.backend
        padded = prediction_batch(backend, [batch.examples[i] for i in chosen])
        hidden_BTH = backend.hidden_states(padded.token_ids_BT, padded.lengths_B)
        hidden_NH = padded.gather(hidden_BTH)
        real = gather(chosen)
        if isinstance(real, SampledTargets):
            # One and the same model samples, teaches and learns.
            own_N = sampled_log_probs(backend.project(hidden_NH), real.sampled_ids_N)
            return replace(real, teacher_logprobs_N=own_N, rollout_logprobs_N=own_N)
        if not isinstance(real, BucketTargets):
            pairs = real.pairs if isinstance(real, ExactTargets) else None
            return ExactTargets(hidden_NH, backend.project, _own_pairs(pairs))
        top_k = real.support_ids_NK.shape[1]
        return top_k_targets(backend.project(hidden_NH), top_k, temperature)

    return own


def _own_pairs(pairs: TokenPairs | None) -> TokenPairs | None:
    """Return the shared tokens of a teacher that is the student, with its vocabulary."""
    return None if pairs is None else replace(pairs, teacher_ids_S=pairs.student_ids_S)


def _waiting_for_b(backend: Backend) -> set[str]:
    """Return adapter matrices A that cannot get a gradient yet: B, which it passes, is zero."""
    parameters = backend.trainable()
    after = {name: name.replace(".lora_A.", ".lora_B.") for name in parameters}
    return {
        name
        for name, b in after.items()
        if b != name and b in parameters and not bool(parameters[b].detach().any())
    }


def _judge_gradient(found: dict[str, Any], exempt: set[str]) -> None:
    if found["gradient_norm"] == 0.0:
        raise CanaryError(
            "no trainable parameter receives a gradient from the teacher",
            "Is the teacher the student itself, or is the adapter not in the forward pass?",
        )
    missing = [name for name in found["parameters_without_gradient"] if name not in exempt]
    if missing:
        raise CanaryError(
            f"{len(missing)} of {found['parameters']} trainable parameters receive no gradient, "
            f"the first is {missing[0]}",
            "Is it in the forward pass? What is not should not be trainable.",
        )


def _judge_teacher(found: dict[str, Any]) -> None:
    if found["largest_divergence"] <= IDENTITY_TOLERANCE:
        raise CanaryError(
            f"the teacher agrees with the student everywhere, to {found['largest_divergence']:.2g} "
            "nats",
            "Is the teacher the student itself? Give it other weights, or a hint.",
        )
    if abs(found["loss"] - found["loss_with_another_teacher"]) < LOSS_DIFFERENCE:
        raise CanaryError(
            f"another teacher gives the same loss, {found['loss']:.6g} nats",
            "The loss does not read the teacher; this is a defect, please report it.",
        )


def _judge_identity(found: dict[str, Any], laws: Laws) -> None:
    if laws.zero_at_identity and found["divergence_from_itself"] > IDENTITY_TOLERANCE:
        raise CanaryError(
            f"the student's divergence from itself is {found['divergence_from_itself']:.3g} nats",
            "Forward passes differ (dropout, cache, kernels) or the loss is wrong; switch dropout "
            "off and report it.",
        )
    share = found["gradient_norm_from_itself"] / found["gradient_norm"]
    if laws.flat_at_identity and share > FLATNESS:
        raise CanaryError(
            f"with the student as its own teacher the gradient keeps {share:.2g} of its norm",
            "Part of the gradient does not come from the teacher; this is a defect, please report "
            "it.",
        )


def _largest(group: GroupLoss) -> float:
    columns = [terms.divergence for terms in group.terms if terms.divergence is not None]
    return float(torch.cat(columns).abs().max())


def _laws(spec: UpdateSpec, targets: BucketTargets | ExactTargets | SampledTargets | None) -> Laws:
    """Return what the objective declares of a student that agrees with its teacher."""
    kind = targets.read_as if isinstance(targets, ExactTargets) else type(targets)
    return objective_for(spec.divergence, kind).laws


def _trainable_digest(backend: Backend) -> str:
    return tensors_digest({name: p.detach() for name, p in backend.trainable().items()})
