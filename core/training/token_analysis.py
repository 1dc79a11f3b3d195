"""What student and teacher thought of single tokens, for the report's readers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.losses.sampled import sampled_log_probs
from core.losses.targets import BucketTargets, ExactTargets, SampledTargets, TokenPairs
from core.models.backend import Backend
from core.training.group import Example, PositionTerms, prediction_batch

MAX_TRAJECTORIES = 8
"""Trajectories of a cycle that are looked at: a sample for the eye, at one more forward pass."""


UNKNOWN = -1
"""Id of a token that the other vocabulary does not have."""


@dataclass(frozen=True)
class Favourites:
    """Most probable token ids before the step, one per position of the analysed trajectories."""

    student_N: list[int]
    teacher_N: list[int | None]
    """None where the teacher was asked about the sampled token alone, or means a token that the
    student does not have."""
    teacher_logprobs_N: list[float | None]
    """Teacher's log-probability of the sampled token, nats; None outside its top k, and where it
    does not have that token."""
    student_logprobs_N: list[float]
    """Student's log-probability of the sampled token at the sampler's temperature, nats."""


@torch.no_grad()
def favourites(
    backend: Backend,
    examples: Sequence[Example],
    targets: BucketTargets | ExactTargets | SampledTargets,
    chunk_size: int,
    temperature: float,
    sampled_at: float = 1.0,
) -> Favourites:
    """Ask both models for their most probable token at each position.

    Args:
        backend: The student before the step.
        examples: Few trajectories.
        targets: Teacher's side of them.
        chunk_size: Positions projected at once.
        temperature: τ of the teacher, at which exact targets are read.
        sampled_at: Temperature of the sampler, at which the student is read.
    """
    batch = prediction_batch(backend, examples)
    hidden_NH = batch.gather(backend.hidden_states(batch.token_ids_BT, batch.lengths_B))
    student: list[int] = []
    teacher: list[int | None] = []
    logprobs: list[float | None] = []
    own: list[float] = []
    ids = [token for example in examples for token in example.target_ids]
    ids_N = torch.tensor(ids, dtype=torch.int64, device=backend.device)
    for start in range(0, len(ids), chunk_size):
        stop = min(start + chunk_size, len(ids))
        logits_CV = backend.project(hidden_NH[start:stop])
        student += logits_CV.argmax(-1).tolist()
        own += sampled_log_probs(logits_CV.float() / sampled_at, ids_N[start:stop]).tolist()
        best, sampled = _teacher(targets.slice(start, stop), ids_N[start:stop], temperature)
        teacher += [None] * (stop - start) if best is None else _known(best)
        logprobs += [value if value > -torch.inf else None for value in sampled.tolist()]
    return Favourites(student, teacher, logprobs, own)


def analysed_rows(
    backend: Backend,
    examples: Sequence[Example],
    terms: Sequence[PositionTerms],
    found: Favourites,
) -> list[dict[str, Any]]:
    """Return one row per selected token of ``examples``.

    Args:
        backend: Its tokenizer names the tokens.
        examples: The analysed trajectories.
        terms: What the loss was made of, for these trajectories first.
        found: What ``favourites`` returned for them.
    """
    rows = []
    piece = backend.tokenizer.decode
    for example, own in zip(examples, terms, strict=False):
        columns = _columns(own)
        for n, position in enumerate(example.prediction_positions):
            place = len(rows)
            best = found.teacher_N[place]
            rows.append(
                {
                    "trajectory_id": example.trajectory_id,
                    "target_position": position + 1,
                    "prediction_position": position,
                    "token_id": example.target_ids[n],
                    "token_piece": piece([example.target_ids[n]]),
                    "span_type": example.span_types[n],
                    "weight": example.weights[n],
                    "teacher_top_token": None if best is None else piece([best]),
                    "student_top_token": piece([found.student_N[place]]),
                    "teacher_sampled_token_log_prob": found.teacher_logprobs_N[place],
                    **{name: values[n] for name, values in columns.items()},
                }
            )
    return rows


def _known(ids_N: Tensor) -> list[int | None]:
    return [None if index == UNKNOWN else index for index in ids_N.tolist()]


def _teacher(
    targets: BucketTargets | ExactTargets | SampledTargets, ids_N: Tensor, temperature: float
) -> tuple[Tensor | None, Tensor]:
    """Return the teacher's best ids and its log-probability of ``ids_N`` (−inf where unknown)."""
    if isinstance(targets, SampledTargets):
        return None, targets.teacher_logprobs_N
    if isinstance(targets, ExactTargets):
        logits_NV = targets.teacher_project(targets.teacher_hidden_NH).float()
        logprobs_NV = (logits_NV / temperature).log_softmax(-1)
        best_N = logits_NV.argmax(-1)
        if targets.pairs is not None:
            return _across(best_N, logprobs_NV, ids_N, targets.pairs)
        return best_N, logprobs_NV.gather(-1, ids_N[:, None]).squeeze(-1)
    best_N1 = targets.support_logprobs_NK.argmax(-1, keepdim=True)
    matches_NK = targets.support_ids_NK == ids_N[:, None]
    sampled_N = targets.support_logprobs_NK.masked_fill(~matches_NK, -torch.inf).amax(-1)
    return targets.support_ids_NK.gather(-1, best_N1).squeeze(-1), sampled_N


def _across(
    best_N: Tensor, logprobs_NU: Tensor, ids_N: Tensor, pairs: TokenPairs
) -> tuple[Tensor, Tensor]:
    """Return the best ids and the sampled tokens' log-probabilities in the student's vocabulary."""
    theirs_N = _translated(ids_N, pairs.student_ids_S, pairs.teacher_ids_S)
    sampled_N = logprobs_NU.gather(-1, theirs_N.clamp(min=0)[:, None]).squeeze(-1)
    best_N = _translated(best_N, pairs.teacher_ids_S, pairs.student_ids_S)
    return best_N, sampled_N.masked_fill(theirs_N == UNKNOWN, -torch.inf)


def _translated(ids_N: Tensor, from_S: Tensor, to_S: Tensor) -> Tensor:
    """Return the other side's ids of tokens, ``UNKNOWN`` where it has none."""
    size = int(torch.cat([ids_N, from_S]).max()) + 1
    table = torch.full((size,), UNKNOWN, dtype=torch.int64, device=ids_N.device)
    table[from_S.long()] = to_S.long()
    return table[ids_N]


def _columns(terms: PositionTerms) -> dict[str, list[float]]:
    columns = {
        "token_loss": terms.objective,
        "divergence": terms.divergence,
        "nll": terms.nll,
        "teacher_entropy": terms.teacher_entropy,
    }
    return {name: column.tolist() for name, column in columns.items() if column is not None}
