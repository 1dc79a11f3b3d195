"""What teacher and student say at every token that the student wrote, and how sure that is.

Both are scored twice, once with another width and in other company: the divergence of a model from
itself is the noise below which a divergence from the other means nothing (``N`` positions).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.errors import TokenizerMismatchError
from core.evaluation.preflight import Comparison, Noise, SpanSigns, Tokenizers, TokenSigns
from core.losses.sampled import sampled_log_probs
from core.losses.temperature import at_temperature
from core.models.backend import Backend
from core.models.batching import needed_tokens, pad_batch
from core.models.tokenizer import generation_prompts_differ
from core.teacher.scorer import rollout_logprobs
from core.trajectory.alignment import AlignmentMap, align
from core.trajectory.masks import target_positions
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory
from core.trajectory.view import TeacherView
from core.trajectory.vocabulary import shared_vocabulary

PIECE = 64
"""Positions projected at once."""
COMPANY = 64
"""Padding, in tokens, of the second scoring, which also has a row more."""


@dataclass
class _Columns:
    """One number per position, as they come."""

    overlap: list[float] = field(default_factory=list)
    student_mass: list[float] = field(default_factory=list)
    teacher_mass: list[float] = field(default_factory=list)
    disagreeing: list[float] = field(default_factory=list)
    divergence: list[float] = field(default_factory=list)
    student_noise: list[float] = field(default_factory=list)
    teacher_noise: list[float] = field(default_factory=list)
    sampler_gap: list[float] = field(default_factory=list)
    span_types: list[str] = field(default_factory=list)


def compare_tokenizers(student: TokenCodec, teacher: TokenCodec) -> Tokenizers:
    """Compare two tokenizers by content."""
    same = student.digest == teacher.digest
    try:
        shared = 1.0 if same else len(shared_vocabulary(student, teacher).student_ids)
    except TokenizerMismatchError:
        shared = 0.0
    return Tokenizers(
        same=same,
        shared=shared if same else shared / student.vocab_size,
        replies_begin_alike=not generation_prompts_differ(student, teacher),
    )


@torch.no_grad()
def compare(
    student: Backend,
    teacher: Backend,
    trajectories: Sequence[Trajectory],
    *,
    top_k: int,
    temperature: float | None,
    views: Sequence[TeacherView] | None = None,
) -> Comparison:
    """Compare two models on a student's own episodes.

    Args:
        student: The model that sampled them.
        teacher: The model that would teach.
        trajectories: Few episodes.
        top_k: Size of the supports that are compared; at most the vocabulary's.
        temperature: That of the sampling; None where it was cut and so has no counterpart.
        views: What the teacher reads in place of the episodes, where it has hints.
    """
    tokenizers = compare_tokenizers(student.tokenizer, teacher.tokenizer)
    facts = {"tokenizers": tokenizers, "episodes": len(trajectories)}
    if not tokenizers.same:
        return Comparison(**facts)
    columns, top_k = _Columns(), min(top_k, student.vocab_size)
    for trajectory, view in zip(trajectories, views or [None] * len(trajectories), strict=True):
        positions = target_positions(trajectory.model_mask)
        if positions:
            aligned = align(trajectory, positions, [1.0] * len(positions), view)
            pair = _Pair(student, teacher, aligned, trajectory, view)
            pair.note(columns, top_k, temperature)
    if not columns.divergence:
        return Comparison(**facts)
    return Comparison(**facts, tokens=_signs(columns, top_k))


class _Pair:
    """Both models on one episode."""

    def __init__(
        self,
        student: Backend,
        teacher: Backend,
        aligned: AlignmentMap,
        trajectory: Trajectory,
        view: TeacherView | None,
    ) -> None:
        own, read = trajectory.token_ids, (view or trajectory).token_ids
        places, theirs = aligned.student_prediction_positions, aligned.teacher_prediction_positions
        self._student = [student.project, *_twice(student, own, places)]
        self._teacher = [teacher.project, *_twice(teacher, read, theirs)]
        self._aligned = aligned
        self._sampled = rollout_logprobs(aligned, trajectory) if trajectory.logprobs else None

    def note(self, columns: _Columns, top_k: int, temperature: float | None) -> None:
        """Append one number per position and kind."""
        columns.span_types += self._aligned.span_types
        for start in range(0, len(self._aligned), PIECE):
            part = slice(start, start + PIECE)
            student_NV, again_NV = (_logprobs(self._student, turn, part) for turn in (1, 2))
            teacher_NV, echo_NV = (_logprobs(self._teacher, turn, part) for turn in (1, 2))
            _note_pair(columns, student_NV, teacher_NV, top_k)
            columns.student_noise += _kl(student_NV, again_NV)
            columns.teacher_noise += _kl(teacher_NV, echo_NV)
            if self._sampled is not None and temperature:
                self._note_gap(columns, student_NV, part, temperature)

    def _note_gap(
        self, columns: _Columns, student_NV: Tensor, part: slice, temperature: float
    ) -> None:
        assert self._sampled is not None, "asked before"
        ids_N = torch.tensor(self._aligned.target_token_ids[part], device=student_NV.device)
        scored_N = sampled_log_probs(at_temperature(student_NV, temperature), ids_N)
        sampled_N = torch.tensor(self._sampled[part], dtype=torch.float64)
        columns.sampler_gap += (scored_N.double().cpu() - sampled_N).abs().tolist()


def _twice(backend: Backend, tokens: Sequence[int], positions: Sequence[int]) -> list[Tensor]:
    """Return hidden states at the positions, alone and then in other company."""
    needed, pad = needed_tokens(tokens, positions), backend.tokenizer.pad_id
    wide = min(len(needed) + COMPANY, backend.max_positions)
    found = []
    for rows, width in (([needed], len(needed)), ([needed[:1], needed], wide)):
        selected = [*[[]] * (len(rows) - 1), positions]
        batch = pad_batch(rows, selected, pad, backend.device, width=width)
        found.append(batch.gather(backend.hidden_states(batch.token_ids_BT, batch.lengths_B)))
    return found


def _logprobs(side: Sequence, turn: int, part: slice) -> Tensor:
    project, hidden_NH = side[0], side[turn]
    return project(hidden_NH[part]).float().log_softmax(-1)


def _kl(one_NV: Tensor, other_NV: Tensor) -> list[float]:
    """Return KL(one‖other) per position, nats, in float64: noise is small."""
    one_NV, other_NV = one_NV.double().log_softmax(-1), other_NV.double().log_softmax(-1)
    return (one_NV.exp() * (one_NV - other_NV)).sum(-1).clamp(min=0).tolist()


def _note_pair(columns: _Columns, student_NV: Tensor, teacher_NV: Tensor, top_k: int) -> None:
    own_NK, theirs_NK = student_NV.topk(top_k).indices, teacher_NV.topk(top_k).indices
    both_N = (own_NK[:, :, None] == theirs_NK[:, None, :]).any(-1).double().mean(-1)
    columns.overlap += both_N.tolist()
    columns.student_mass += student_NV.gather(-1, theirs_NK).exp().sum(-1).tolist()
    columns.teacher_mass += teacher_NV.gather(-1, own_NK).exp().sum(-1).tolist()
    columns.disagreeing += (own_NK[:, 0] != theirs_NK[:, 0]).double().tolist()
    columns.divergence += _kl(student_NV, teacher_NV)


def _signs(columns: _Columns, top_k: int) -> TokenSigns:
    own, theirs = (_noise(each) for each in (columns.student_noise, columns.teacher_noise))
    floor = max(own.largest, theirs.largest)
    above = [float(value > floor) for value in columns.divergence]
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(columns.span_types):
        places[name].append(place)
    return TokenSigns(
        tokens=len(above),
        top_k=top_k,
        overlap=_mean(columns.overlap),
        student_mass=_mean(columns.student_mass),
        teacher_mass=_mean(columns.teacher_mass),
        disagreeing=_mean(columns.disagreeing),
        above_noise=_mean(above),
        divergence=_mean(columns.divergence),
        spans={
            name: SpanSigns(
                tokens=len(found),
                disagreeing=_mean([columns.disagreeing[place] for place in found]),
                divergence=_mean([columns.divergence[place] for place in found]),
            )
            for name, found in sorted(places.items())
        },
        student_noise=own,
        teacher_noise=theirs,
        sampler_gap=_mean(columns.sampler_gap) if columns.sampler_gap else None,
    )


def _noise(values: Sequence[float]) -> Noise:
    return Noise(mean=_mean(values), largest=max(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
