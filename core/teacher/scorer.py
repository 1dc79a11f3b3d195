"""Ask the teacher about exactly the states that the student visited.

One padded forward pass scores several trajectories, and only one batch of teacher outputs is alive
at a time: it is reduced to k log-probabilities or one per position, or kept as hidden states,
before the next.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from core.errors import AlignmentError, StalePolicyError, TokenizerMismatchError
from core.losses.targets import BucketTargets, SampledTargets
from core.models.backend import Backend
from core.models.batching import needed_tokens
from core.recipe.runtime import Runtime
from core.recipe.specs import ScoreSpec
from core.teacher.physical import Asked, Columns, ScoringShape, answer, nothing, plan
from core.teacher.reuse import Reuse, Tally
from core.teacher.target_cache import TargetCache
from core.teacher.targets import Provenance, ScoredTargets, Selected, tokens_digest
from core.trajectory.alignment import AlignmentMap, align
from core.trajectory.trajectory import Trajectory
from core.trajectory.view import TeacherView


class SelectedPositions(Protocol):
    """Positions of one trajectory that count (``core.selection.selectors``)."""

    @property
    def positions(self) -> Sequence[int]:
        """Ascending positions of target tokens."""
        ...

    @property
    def weights(self) -> Sequence[float]:
        """Weight of each."""
        ...


def score(
    teacher: Backend,
    trajectories: Sequence[Trajectory],
    selections: Sequence[SelectedPositions],
    spec: ScoreSpec,
    runtime: Runtime,
    *,
    teacher_digest: str,
    teacher_views: Sequence[TeacherView] | None = None,
    cache: TargetCache | None = None,
    tally: Tally | None = None,
) -> ScoredTargets:
    """Score the selected positions of trajectories.

    A trajectory whose every target is in the cache is not read by the teacher; the targets are
    bitwise those that it would give.

    Args:
        teacher: The frozen model.
        trajectories: What the student did, all at one policy version.
        selections: Positions and weights, one entry per trajectory.
        spec: What is kept per position.
        runtime: Physical sizes.
        teacher_digest: Content digest of the teacher's weights.
        teacher_views: What the teacher reads in place of the trajectories (with a hint).
        cache: Targets of earlier steps; None asks the teacher about everything.
        tally: Counts what came from the cache; the targets do not depend on that.

    Raises:
        TokenizerMismatchError: The trajectories were made by another tokenizer.
        StalePolicyError: They were sampled at different policy versions.
        AlignmentError: A view does not match or is longer than the teacher can read, counts differ,
            or the sampler's log-probabilities are wanted and were not recorded.
    """
    check_request(teacher.tokenizer.digest, trajectories, selections, spec, teacher_views)
    views: Sequence[TeacherView | None] = teacher_views or [None] * len(trajectories)
    maps = [
        align(trajectory, list(chosen.positions), list(chosen.weights), view)
        for trajectory, chosen, view in zip(trajectories, selections, views, strict=True)
    ]
    sequences = [
        needed_tokens((view or trajectory).token_ids, entry.teacher_prediction_positions)
        for trajectory, view, entry in zip(trajectories, views, maps, strict=True)
    ]
    check_lengths(teacher, trajectories, sequences)
    asked = [
        Asked(
            tokens,
            entry.teacher_prediction_positions,
            entry.target_token_ids,
            ScoringShape.of(teacher, runtime, len(tokens)),
        )
        for tokens, entry in zip(sequences, maps, strict=True)
    ]
    reuse = Reuse(cache, teacher, spec, runtime, teacher_digest, tally or Tally())
    columns = _answered(teacher, asked, spec, reuse)
    return ScoredTargets(
        provenance=Provenance.of(
            spec, teacher_digest, teacher.tokenizer.digest, trajectories[0].policy_version
        ),
        selected=tuple(
            selected_of(entry, trajectory)
            for entry, trajectory in zip(maps, trajectories, strict=True)
        ),
        values=values_of(columns, spec, maps, trajectories),
    )


def _answered(teacher: Backend, asked: Sequence[Asked], spec: ScoreSpec, reuse: Reuse) -> Columns:
    """Return the columns of all positions, trajectory by trajectory."""
    known = reuse.recall(asked)
    missing = [i for i, one in enumerate(asked) if one.positions and known[i] is None]
    computed: list[tuple[int, Columns]] = []
    for indices in plan(asked, missing):
        answers = answer(teacher, [asked[i] for i in indices], spec)
        computed += zip(indices, answers, strict=True)
    reuse.keep(computed)
    of_index = dict(enumerate(known)) | dict(computed)
    parts = [nothing(teacher, spec), *(part for _, part in sorted(of_index.items()) if part)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def check_request(
    tokenizer_digest: str,
    trajectories: Sequence[Trajectory],
    selections: Sequence[SelectedPositions],
    spec: ScoreSpec,
    teacher_views: Sequence[TeacherView] | None = None,
) -> None:
    """Refuse what cannot be scored together.

    Args:
        tokenizer_digest: Of the teacher's tokenizer.
        trajectories: What the student did.
        selections: Positions and weights, one entry per trajectory.
        spec: What is kept per position.
        teacher_views: What the teacher reads in place of the trajectories (with a hint).

    Raises:
        TokenizerMismatchError: The trajectories were made by another tokenizer.
        StalePolicyError: They were sampled at different policy versions.
        AlignmentError: Counts differ.
    """
    counts = {len(trajectories), len(selections), len(teacher_views or trajectories)}
    if counts == {0} or len(counts) > 1:
        raise AlignmentError(
            f"{len(trajectories)} trajectories but {len(selections)} selections",
            "Score at least one trajectory, with one selection and one view each.",
        )
    if (spec.teacher_mode == "privileged_context") != (teacher_views is not None):
        raise AlignmentError(
            f"teacher_mode is {spec.teacher_mode} but views were "
            f"{'not ' if teacher_views is None else ''}given",
            "Give one teacher view per trajectory exactly where the teacher reads a hint.",
        )
    for trajectory in trajectories:
        if trajectory.tokenizer_digest != tokenizer_digest:
            raise TokenizerMismatchError(
                f"{trajectory.trajectory_id} was made by another tokenizer than the teacher's",
                "Student and teacher must share one tokenizer, compared by content; or set "
                "loss.cross_tokenizer=true with loss.mode=shared_vocab or verl_pg_k1.",
            )
    check_versions(trajectories)


def check_versions(trajectories: Sequence[Trajectory]) -> None:
    """Refuse episodes of several students.

    Raises:
        StalePolicyError: They were sampled at different policy versions.
    """
    versions = sorted({trajectory.policy_version for trajectory in trajectories})
    if len(versions) > 1:
        raise StalePolicyError(
            f"the trajectories were sampled at policy versions {versions}",
            "Score the episodes of one version at a time.",
        )


def check_lengths(
    teacher: Backend, trajectories: Sequence[Trajectory], sequences: Sequence[Sequence[int]]
) -> None:
    """Refuse what the teacher cannot read whole; nothing is ever cut, least of all a hint.

    Raises:
        AlignmentError: A sequence is longer than the teacher's context.
    """
    for trajectory, token_ids in zip(trajectories, sequences, strict=True):
        if len(token_ids) > teacher.max_positions:
            raise AlignmentError(
                f"{trajectory.trajectory_id} has {len(token_ids)} tokens for the teacher, which "
                f"reads {teacher.max_positions}",
                "Lower rollout.max_total_tokens, shorten the hint, or use a teacher with a longer "
                "context.",
            )


def values_of(
    columns: Columns,
    spec: ScoreSpec,
    maps: Sequence[AlignmentMap],
    trajectories: Sequence[Trajectory],
) -> BucketTargets | SampledTargets | Tensor:
    """Return what was kept, position by position.

    Args:
        columns: Of all positions, trajectory by trajectory.
        spec: What was kept.
        maps: One per trajectory.
        trajectories: What was scored.

    Raises:
        AlignmentError: The sampler's log-probabilities are wanted and were not recorded.
    """
    if spec.loss_mode == "exact_full_vocab":
        return columns["teacher_hidden_NH"]
    if spec.loss_mode == "verl_pg_k1":
        ids = [token for entry in maps for token in entry.target_token_ids]
        rollout = [
            value
            for entry, trajectory in zip(maps, trajectories, strict=True)
            for value in rollout_logprobs(entry, trajectory)
        ]
        return SampledTargets(
            sampled_ids_N=torch.tensor(ids, dtype=torch.int64),
            rollout_logprobs_N=torch.tensor(rollout, dtype=torch.float32),
            **columns,
        )
    return BucketTargets(**columns, temperature=spec.temperature or 1.0)


def rollout_logprobs(entry: AlignmentMap, trajectory: Trajectory) -> list[float]:
    """Return the sampler's log-probability of each target, recorded on the trajectory's own axis.

    Raises:
        AlignmentError: The trajectory was not sampled.
    """
    written = [position for position, own in enumerate(trajectory.model_mask) if own]
    if entry.target_token_ids and not trajectory.logprobs:
        raise AlignmentError(
            f"{trajectory.trajectory_id} has no log-probabilities: nobody sampled it",
            "Score episodes of a student where loss.mode is verl_pg_k1.",
        )
    recorded = dict(zip(written, trajectory.logprobs, strict=bool(trajectory.logprobs)))
    return [recorded[position + 1] for position in entry.student_prediction_positions]


def selected_of(entry: AlignmentMap, trajectory: Trajectory) -> Selected:
    """Return the positions of a trajectory's map as they are stored."""
    return Selected(
        trajectory_id=entry.trajectory_id,
        tokens_digest=tokens_digest(trajectory.token_ids),
        prediction_positions=list(entry.student_prediction_positions),
        target_ids=list(entry.target_token_ids),
        weights=list(entry.token_weights),
        span_types=list(entry.span_types),
    )
