"""Ask the teacher about exactly the states that the student visited.

One padded forward pass scores many trajectories, and only one batch of teacher outputs is alive at
a time: it is reduced to k log-probabilities or one per position, or kept as hidden states, before
the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from core.errors import AlignmentError, StalePolicyError, TokenizerMismatchError
from core.losses.buckets import top_k_targets
from core.losses.sampled import sampled_log_probs
from core.losses.targets import BucketTargets, SampledTargets
from core.losses.temperature import at_temperature
from core.models.backend import Backend
from core.models.batching import needed_tokens, pad_batch, plan_physical
from core.recipe.runtime import Runtime
from core.recipe.specs import ScoreSpec
from core.teacher.targets import Provenance, ScoredTargets, Selected
from core.trajectory.alignment import AlignmentMap, align
from core.trajectory.trajectory import Trajectory
from core.trajectory.transcript import TeacherView


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


@dataclass
class _Columns:
    """Results of the positions scored so far, batch by batch."""

    support_ids: list[Tensor] = field(default_factory=list)
    support_logprobs: list[Tensor] = field(default_factory=list)
    tail_logprob: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    sampled_logprobs: list[Tensor] = field(default_factory=list)


@torch.no_grad()
def score(
    teacher: Backend,
    trajectories: Sequence[Trajectory],
    selections: Sequence[SelectedPositions],
    spec: ScoreSpec,
    runtime: Runtime,
    *,
    teacher_digest: str,
    teacher_views: Sequence[TeacherView] | None = None,
) -> ScoredTargets:
    """Score the selected positions of trajectories.

    Args:
        teacher: The frozen model.
        trajectories: What the student did, all at one policy version.
        selections: Positions and weights, one entry per trajectory.
        spec: What is kept per position.
        runtime: Physical sizes.
        teacher_digest: Content digest of the teacher's weights.
        teacher_views: What the teacher reads in place of the trajectories (with a hint).

    Raises:
        TokenizerMismatchError: The trajectories were made by another tokenizer.
        StalePolicyError: They were sampled at different policy versions.
        AlignmentError: A view does not match or is longer than the teacher can read, counts differ,
            or the sampler's log-probabilities are wanted and were not recorded.
    """
    _check(teacher, trajectories, selections, spec, teacher_views)
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
    columns = _Columns()
    scored: list[int] = []
    for indices in plan_physical([len(sequence) for sequence in sequences], runtime):
        batch = pad_batch(
            [sequences[i] for i in indices],
            [maps[i].teacher_prediction_positions for i in indices],
            teacher.tokenizer.pad_id,
            teacher.device,
        )
        hidden_NH = batch.gather(teacher.hidden_states(batch.token_ids_BT, batch.lengths_B))
        ids = [token for i in indices for token in maps[i].target_token_ids]
        _keep(teacher, hidden_NH, ids, spec, runtime.chunk_size, columns)
        scored.extend(indices)
    order_N = _trajectory_order(scored, [len(entry.token_weights) for entry in maps])
    return ScoredTargets(
        provenance=Provenance(
            mode=spec.loss_mode,
            top_k=spec.top_k,
            temperature=spec.temperature,
            teacher_digest=teacher_digest,
            teacher_mode=spec.teacher_mode,
            tokenizer_digest=teacher.tokenizer.digest,
            policy_version=trajectories[0].policy_version,
        ),
        selected=tuple(selected_of(entry) for entry in maps),
        values=_values(columns, order_N, spec, maps, trajectories),
    )


def _check(
    teacher: Backend,
    trajectories: Sequence[Trajectory],
    selections: Sequence[SelectedPositions],
    spec: ScoreSpec,
    teacher_views: Sequence[TeacherView] | None,
) -> None:
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
        if trajectory.tokenizer_digest != teacher.tokenizer.digest:
            raise TokenizerMismatchError(
                f"{trajectory.trajectory_id} was made by another tokenizer than the teacher's",
                "Student and teacher must share one tokenizer, compared by content; or set "
                "loss.cross_tokenizer=true with loss.mode=verl_pg_k1.",
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


def _keep(
    teacher: Backend,
    hidden_NH: Tensor,
    target_ids: Sequence[int],
    spec: ScoreSpec,
    chunk_size: int,
    columns: _Columns,
) -> None:
    """Reduce one batch of hidden states to what is kept of it, on the CPU."""
    if spec.loss_mode == "exact_full_vocab":
        columns.hidden.append(hidden_NH.cpu())
        return
    if spec.loss_mode == "verl_pg_k1":
        ids_N = torch.tensor(target_ids, dtype=torch.int64, device=hidden_NH.device)
        for hidden_CH, ids_C in zip(
            hidden_NH.split(chunk_size), ids_N.split(chunk_size), strict=True
        ):
            logits_CV = at_temperature(teacher.project(hidden_CH), spec.temperature or 1.0)
            columns.sampled_logprobs.append(sampled_log_probs(logits_CV, ids_C).cpu())
        return
    for hidden_CH in hidden_NH.split(chunk_size):
        targets = top_k_targets(
            teacher.project(hidden_CH), spec.top_k or 1, spec.temperature or 1.0
        )
        columns.support_ids.append(targets.support_ids_NK.cpu())
        columns.support_logprobs.append(targets.support_logprobs_NK.cpu())
        columns.tail_logprob.append(targets.tail_logprob_N.cpu())
        if targets.entropy_N is not None:
            columns.entropy.append(targets.entropy_N.cpu())


def _trajectory_order(scored: Sequence[int], counts: Sequence[int]) -> Tensor:
    """Return, for each position in trajectory order, its row in the order of scoring."""
    starts, start = {}, 0
    for index in scored:
        starts[index] = start
        start += counts[index]
    rows = [starts[index] + n for index, count in enumerate(counts) for n in range(count)]
    return torch.tensor(rows, dtype=torch.int64)


def _values(
    columns: _Columns,
    order_N: Tensor,
    spec: ScoreSpec,
    maps: Sequence[AlignmentMap],
    trajectories: Sequence[Trajectory],
) -> BucketTargets | SampledTargets | Tensor:
    if columns.hidden:
        return torch.cat(columns.hidden)[order_N]
    if columns.sampled_logprobs:
        ids = [token for entry in maps for token in entry.target_token_ids]
        rollout = [
            value
            for entry, trajectory in zip(maps, trajectories, strict=True)
            for value in rollout_logprobs(entry, trajectory)
        ]
        return SampledTargets(
            sampled_ids_N=torch.tensor(ids, dtype=torch.int64),
            teacher_logprobs_N=torch.cat(columns.sampled_logprobs)[order_N],
            rollout_logprobs_N=torch.tensor(rollout, dtype=torch.float32),
        )
    return BucketTargets(
        support_ids_NK=torch.cat(columns.support_ids)[order_N],
        support_logprobs_NK=torch.cat(columns.support_logprobs)[order_N],
        tail_logprob_N=torch.cat(columns.tail_logprob)[order_N],
        entropy_N=torch.cat(columns.entropy)[order_N],
        temperature=spec.temperature or 1.0,
    )


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


def selected_of(entry: AlignmentMap) -> Selected:
    """Return the positions of a map as they are stored."""
    return Selected(
        trajectory_id=entry.trajectory_id,
        prediction_positions=list(entry.student_prediction_positions),
        target_ids=list(entry.target_token_ids),
        weights=list(entry.token_weights),
        span_types=list(entry.span_types),
    )
