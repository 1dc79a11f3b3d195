"""Asking a teacher that has another tokenizer what it would say where both stand at one byte.

At a meeting of the two tokenisations the student's state and the teacher's are the same text, so
their distributions over the next token can be compared on the tokens that both vocabularies have
(``core.losses.shared``). Everywhere else inside a span one of the two is in the middle of a token:
those positions are in no loss and are counted.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from core.errors import AlignmentError
from core.losses.targets import TokenPairs
from core.models.backend import Backend
from core.models.batching import needed_tokens, pad_batch, plan_physical
from core.recipe.runtime import Runtime
from core.recipe.specs import ScoreSpec
from core.teacher.cross_tokenizer import CrossScored
from core.teacher.scorer import SelectedPositions, check_lengths, check_versions, selected_of
from core.teacher.targets import Provenance, ScoredTargets
from core.trajectory.alignment import align
from core.trajectory.byte_alignment import ByteAlignment, Meeting, align_bytes
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory
from core.trajectory.vocabulary import SharedVocabulary, shared_vocabulary


@torch.no_grad()
def score_shared(
    teacher: Backend,
    student_codec: TokenCodec,
    trajectories: Sequence[Trajectory],
    selections: Sequence[SelectedPositions],
    spec: ScoreSpec,
    runtime: Runtime,
    *,
    teacher_digest: str,
) -> CrossScored:
    """Keep the teacher's hidden states at the selected positions where both tokenisations meet.

    Args:
        teacher: The frozen model; its tokenizer may be any that says what its tokens stand for.
        student_codec: The tokenizer of the trajectories.
        trajectories: What the student did, all at one policy version.
        selections: Positions and weights, one entry per trajectory.
        spec: ``loss_mode`` must be ``shared_vocab``.
        runtime: Physical sizes.
        teacher_digest: Content digest of the teacher's weights.

    Returns:
        Exact targets with the pairs of shared ids, at the student's positions.

    Raises:
        AlignmentError: Another loss mode, another tokenizer made a trajectory, or it is too long
            for the teacher.
        TokenizerMismatchError: A tokenizer does not say what its tokens stand for, or none is
            shared.
        StalePolicyError: The trajectories were sampled at different policy versions.
    """
    if spec.loss_mode != "shared_vocab":
        raise AlignmentError(
            f"{spec.loss_mode} does not read the tokens that two vocabularies share",
            "Set loss.mode=shared_vocab.",
        )
    check_versions(trajectories)
    shared = shared_vocabulary(student_codec, teacher.tokenizer)
    aligned = [align_bytes(one, student_codec, teacher.tokenizer) for one in trajectories]
    chosen = [_chosen(own, selection) for own, selection in zip(aligned, selections, strict=True)]
    weights = [dict(zip(one.positions, one.weights, strict=True)) for one in selections]
    entries = [
        align(trajectory, positions, [known[position] for position in positions])
        for trajectory, meetings, known in zip(trajectories, chosen, weights, strict=True)
        for positions in [[meeting.student_position for meeting in meetings]]
    ]
    hidden_NH = _hidden_states(teacher, trajectories, aligned, chosen, runtime)
    provenance = Provenance.of(
        spec, teacher_digest, student_codec.digest, trajectories[0].policy_version
    )
    selected = tuple(
        selected_of(entry, trajectory)
        for entry, trajectory in zip(entries, trajectories, strict=True)
    )
    pairs = TokenPairs(torch.tensor(shared.student_ids), torch.tensor(shared.teacher_ids))
    met = sum(meeting.num_bytes for own in aligned for meeting in own.meetings)
    model_bytes = sum(own.model_bytes for own in aligned)
    return CrossScored(
        ScoredTargets(provenance, selected, hidden_NH, pairs),
        model_bytes,
        model_bytes - met,
        _counts(shared, student_codec, teacher.tokenizer, selections, hidden_NH),
    )


def _chosen(own: ByteAlignment, selection: SelectedPositions) -> list[Meeting]:
    wanted = set(selection.positions)
    return [meeting for meeting in own.meetings if meeting.student_position in wanted]


def _hidden_states(
    teacher: Backend,
    trajectories: Sequence[Trajectory],
    aligned: Sequence[ByteAlignment],
    chosen: Sequence[Sequence[Meeting]],
    runtime: Runtime,
) -> Tensor:
    """Return the teacher's hidden states at the meetings, trajectory by trajectory, on the CPU."""
    positions = [[meeting.teacher_position - 1 for meeting in meetings] for meetings in chosen]
    sequences = [
        needed_tokens(own.teacher_ids, places)
        for own, places in zip(aligned, positions, strict=True)
    ]
    check_lengths(teacher, trajectories, sequences)
    found: dict[int, Tensor] = {}
    for indices in plan_physical([len(sequence) for sequence in sequences], runtime):
        batch = pad_batch(
            [sequences[i] for i in indices],
            [positions[i] for i in indices],
            teacher.tokenizer.pad_id,
            teacher.device,
        )
        hidden_NH = batch.gather(teacher.hidden_states(batch.token_ids_BT, batch.lengths_B)).cpu()
        found |= dict(
            zip(indices, hidden_NH.split([len(positions[i]) for i in indices]), strict=True)
        )
    return torch.cat([found[i] for i in range(len(sequences))])


def _counts(
    shared: SharedVocabulary,
    student_codec: TokenCodec,
    teacher_codec: TokenCodec,
    selections: Sequence[SelectedPositions],
    hidden_NH: Tensor,
) -> dict[str, int]:
    """Return how much of either vocabulary and of the selection is compared."""
    selected = sum(len(selection.positions) for selection in selections)
    return {
        "shared_tokens": len(shared.student_ids),
        "student_vocabulary": student_codec.vocab_size,
        "teacher_vocabulary": teacher_codec.vocab_size,
        "unaligned_positions": selected - len(hidden_NH),
    }
