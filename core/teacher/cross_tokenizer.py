"""Asking a teacher that has another tokenizer about what the student sampled.

The chain rule makes the sum of the log-probabilities of a chunk's tokens the log-probability of its
bytes as that model would tokenise them. Over one chunk the sampled reverse KL is the difference of
two such sums, log R(chunk) − log P(chunk), and minus it is the advantage of every token in the
chunk: the gradient of a chunk's log-probability is the sum of its tokens'. Both sums are of *one*
tokenisation; a model's probability of the bytes in all tokenisations is larger.

Metrics are means over tokens, and every token of a chunk repeats the chunk's difference: ``k1`` and
the losses weigh a chunk by its number of tokens. They are nats per chunk so weighted, not nats per
token, and no estimate of a reverse KL per token; runs over one vocabulary are not comparable.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.errors import AlignmentError
from core.losses.sampled import sampled_log_probs
from core.losses.targets import SampledTargets
from core.models.backend import Backend
from core.models.batching import needed_tokens, pad_batch, plan_physical
from core.recipe.runtime import Runtime
from core.recipe.specs import ScoreSpec
from core.teacher.scorer import (
    SelectedPositions,
    check_lengths,
    check_versions,
    rollout_logprobs,
    selected_of,
)
from core.teacher.targets import Provenance, ScoredTargets
from core.trajectory.alignment import align
from core.trajectory.byte_alignment import ByteAlignment, Chunk, align_bytes
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory


@dataclass(frozen=True)
class CrossScored:
    """Targets of the aligned tokens, and how much was left out."""

    targets: ScoredTargets
    model_bytes: int
    """Bytes that the student wrote."""
    unaligned_bytes: int
    """Those of them in no chunk, or in a chunk with a token that was not selected; of a shared
    vocabulary, those after no meeting."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else is left out: sizes of the vocabularies and of what they share."""


@torch.no_grad()
def score_across(
    teacher: Backend,
    student_codec: TokenCodec,
    trajectories: Sequence[Trajectory],
    selections: Sequence[SelectedPositions],
    spec: ScoreSpec,
    runtime: Runtime,
    *,
    teacher_digest: str,
) -> CrossScored:
    """Score the selected tokens chunk by chunk.

    Args:
        teacher: The frozen model; its tokenizer may be any.
        student_codec: The tokenizer of the trajectories.
        trajectories: What the student did, all at one policy version.
        selections: Positions and weights, one entry per trajectory.
        spec: ``loss_mode`` must be ``verl_pg_k1``.
        runtime: Physical sizes.
        teacher_digest: Content digest of the teacher's weights.

    Returns:
        Targets whose difference of sampler's and teacher's log-probability is the chunk's, at every
        token of a chunk; a single teacher's number there is not a log-probability.

    Raises:
        AlignmentError: Another loss mode, another tokenizer made a trajectory, it has no
            log-probabilities, or it is too long for the teacher.
        StalePolicyError: The trajectories were sampled at different policy versions.
    """
    if spec.loss_mode != "verl_pg_k1":
        raise AlignmentError(
            f"{spec.loss_mode} does not compare sums over texts",
            "Set loss.mode=verl_pg_k1, or shared_vocab for the tokens that both sides have.",
        )
    check_versions(trajectories)
    aligned = [align_bytes(one, student_codec, teacher.tokenizer) for one in trajectories]
    chosen = [
        _selected_chunks(own, selection) for own, selection in zip(aligned, selections, strict=True)
    ]
    sums = _teacher_sums(teacher, trajectories, aligned, chosen, spec, runtime)
    selected, ids, teachers, rollouts = [], [], [], []
    for trajectory, chunks, logprobs in zip(trajectories, chosen, sums, strict=True):
        positions = [j for chunk in chunks for j in range(chunk.student_start, chunk.student_stop)]
        entry = align(trajectory, positions, [1.0] * len(positions))
        recorded = rollout_logprobs(entry, trajectory)
        selected.append(selected_of(entry, trajectory))
        ids += entry.target_token_ids
        rollouts += recorded
        teachers += _spread(chunks, recorded, logprobs)
    kept = sum(chunk.num_bytes for chunks in chosen for chunk in chunks)
    model_bytes = sum(own.model_bytes for own in aligned)
    values = SampledTargets(
        sampled_ids_N=torch.tensor(ids, dtype=torch.int64),
        teacher_logprobs_N=torch.tensor(teachers, dtype=torch.float32),
        rollout_logprobs_N=torch.tensor(rollouts, dtype=torch.float32),
    )
    provenance = Provenance.of(
        spec, teacher_digest, student_codec.digest, trajectories[0].policy_version
    )
    targets = ScoredTargets(provenance, tuple(selected), values)
    return CrossScored(targets, model_bytes, model_bytes - kept)


def _selected_chunks(own: ByteAlignment, selection: SelectedPositions) -> list[Chunk]:
    """Return the chunks of which every token was selected."""
    wanted = set(selection.positions)
    return [
        chunk
        for chunk in own.chunks
        if wanted.issuperset(range(chunk.student_start, chunk.student_stop))
    ]


def _teacher_sums(
    teacher: Backend,
    trajectories: Sequence[Trajectory],
    aligned: Sequence[ByteAlignment],
    chosen: Sequence[Sequence[Chunk]],
    spec: ScoreSpec,
    runtime: Runtime,
) -> list[list[float]]:
    """Return the teacher's log-probability of each chunk, trajectory by trajectory."""
    targets = [
        [k for chunk in chunks for k in range(chunk.teacher_start, chunk.teacher_stop)]
        for chunks in chosen
    ]
    positions = [[k - 1 for k in own] for own in targets]
    sequences = [
        needed_tokens(own.teacher_ids, places)
        for own, places in zip(aligned, positions, strict=True)
    ]
    check_lengths(teacher, trajectories, sequences)
    sums: list[list[float]] = [[] for _ in aligned]
    for indices in plan_physical([len(sequence) for sequence in sequences], runtime):
        batch = pad_batch(
            [sequences[i] for i in indices],
            [positions[i] for i in indices],
            teacher.tokenizer.pad_id,
            teacher.device,
        )
        hidden_NH = batch.gather(teacher.hidden_states(batch.token_ids_BT, batch.lengths_B))
        ids = [aligned[i].teacher_ids[k] for i in indices for k in targets[i]]
        found = iter(_log_probs(teacher, hidden_NH, ids, runtime.chunk_size))
        for i in indices:
            sums[i] = [
                _take(found, chunk.teacher_stop - chunk.teacher_start) for chunk in chosen[i]
            ]
    return sums


def _log_probs(
    teacher: Backend, hidden_NH: Tensor, token_ids: Sequence[int], chunk_size: int
) -> list[float]:
    ids_N = torch.tensor(token_ids, dtype=torch.int64, device=hidden_NH.device)
    pieces = zip(hidden_NH.split(chunk_size), ids_N.split(chunk_size), strict=True)
    return [
        value
        for hidden_CH, ids_C in pieces
        for value in sampled_log_probs(teacher.project(hidden_CH), ids_C).tolist()
    ]


def _take(values: Iterator[float], count: int) -> float:
    return sum(next(values) for _ in range(count))


def _spread(
    chunks: Sequence[Chunk], rollout: Sequence[float], teacher_sums: Sequence[float]
) -> Iterator[float]:
    """Yield, per token, the sampler's log-probability minus the chunk's difference."""
    start = 0
    for chunk, teacher_sum in zip(chunks, teacher_sums, strict=True):
        own = rollout[start : start + chunk.student_stop - chunk.student_start]
        difference = sum(own) - teacher_sum
        yield from (value - difference for value in own)
        start += len(own)
