"""Alignment: where the student and the teacher predict the same token.

The only place in the system where a target j becomes the prediction position j − 1: the logits at
j − 1 predict token j. Everything else speaks of targets.

A teacher with privileged context reads the student's segments and at least one more. Segments are
matched by key, so positions move by whole segments and never by guessing at text.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.errors import AlignmentError, TokenizerMismatchError
from core.trajectory.masks import check_target_positions, model_mask
from core.trajectory.spans import Span


class AlignedSequence(Protocol):
    """Tokens tiled by keyed spans: a trajectory or a teacher's view of one."""

    @property
    def token_ids(self) -> Sequence[int]:
        """All tokens."""
        ...

    @property
    def spans(self) -> Sequence[Span]:
        """Ascending and tiling the tokens."""
        ...


class StudentSequence(AlignedSequence, Protocol):
    """A trajectory of the student."""

    @property
    def trajectory_id(self) -> str:
        """Named in errors and in the map."""
        ...

    @property
    def tokenizer_digest(self) -> str:
        """Content digest of the tokenizer that made the ids."""
        ...


@dataclass(frozen=True)
class AlignmentMap:
    """One row per target: where each side predicts it, what it is, and how much it weighs."""

    trajectory_id: str
    student_prediction_positions: list[int]
    """Strictly ascending."""
    teacher_prediction_positions: list[int]
    target_token_ids: list[int]
    model_token_mask: list[bool]
    """Whether the student wrote the target; a weight elsewhere must be zero."""
    token_weights: list[float]
    span_types: list[str]

    def __post_init__(self) -> None:
        columns = (
            self.teacher_prediction_positions,
            self.target_token_ids,
            self.model_token_mask,
            self.token_weights,
            self.span_types,
        )
        rows = len(self.student_prediction_positions)
        if any(len(column) != rows for column in columns):
            raise self._error(f"columns of {[rows, *map(len, columns)]} rows")
        if any(position < 0 for position in self.teacher_prediction_positions):
            raise self._error("a negative teacher position: token 0 has no prediction")
        previous = -1
        for position in self.student_prediction_positions:
            if position <= previous:
                raise self._error(f"student position {position} after {previous}: they must ascend")
            previous = position
        for weight, written in zip(self.token_weights, self.model_token_mask, strict=True):
            if not math.isfinite(weight) or weight < 0 or (weight > 0 and not written):
                raise self._error(f"weight {weight} on a token of the {_author(written)}")

    def __len__(self) -> int:
        return len(self.student_prediction_positions)

    def _error(self, what: str) -> AlignmentError:
        return AlignmentError(
            f"alignment of {self.trajectory_id} has {what}", "Build it with core's align()."
        )


def align(
    student: StudentSequence,
    positions: Sequence[int],
    weights: Sequence[float],
    teacher: AlignedSequence | None = None,
) -> AlignmentMap:
    """Map target positions to the prediction positions of both sides.

    Args:
        student: The trajectory.
        positions: Targets, ascending, each written by the student; 0 is none.
        weights: One non-negative weight per target.
        teacher: What the teacher reads, where that is not the trajectory itself. Every segment of
            the student up to its last target must be there, verbatim and in the same order.

    Returns:
        One row per target.

    Raises:
        AlignmentError: A target or weight is invalid, or the teacher's view lacks a segment, has it
            twice, in another order, in another length or with another token, or predicts a target
            from nothing.
        TokenizerMismatchError: The teacher's view comes from another tokenizer.
    """
    mask = _model_mask(student)
    _check_request(student, positions, weights, mask)
    teacher_positions = list(positions)
    if teacher is not None:
        _check_tokenizer(student, teacher)
        teacher_positions = _teacher_targets(student, teacher, positions)
    return AlignmentMap(
        trajectory_id=student.trajectory_id,
        student_prediction_positions=[position - 1 for position in positions],
        teacher_prediction_positions=[position - 1 for position in teacher_positions],
        target_token_ids=[student.token_ids[position] for position in positions],
        model_token_mask=[mask[position] for position in positions],
        token_weights=[float(weight) for weight in weights],
        span_types=[str(span.span_type) for span, _ in _located(student.spans, positions)],
    )


def _author(written: bool) -> str:
    return "student" if written else "context"


def _model_mask(student: StudentSequence) -> list[bool]:
    try:
        return model_mask(
            [(span.span_type, span.start, span.end) for span in student.spans],
            len(student.token_ids),
        )
    except ValueError as error:
        raise AlignmentError(
            f"{student.trajectory_id}: {error}", "Rebuild the trajectory."
        ) from error


def _check_request(
    student: StudentSequence,
    positions: Sequence[int],
    weights: Sequence[float],
    mask: Sequence[bool],
) -> None:
    if len(positions) != len(weights):
        raise AlignmentError(
            f"{student.trajectory_id}: {len(positions)} positions but {len(weights)} weights",
            "Give one weight per position.",
        )
    try:
        check_target_positions(positions, mask)
    except ValueError as error:
        raise AlignmentError(
            f"{student.trajectory_id}: {error}", "Select among target_positions()."
        ) from error


def _check_tokenizer(student: StudentSequence, teacher: AlignedSequence) -> None:
    digest = getattr(teacher, "tokenizer_digest", student.tokenizer_digest)
    if digest != student.tokenizer_digest:
        raise TokenizerMismatchError(
            f"{student.trajectory_id}: the teacher's view has tokenizer {digest[:12]}, "
            f"the student's {student.tokenizer_digest[:12]}",
            "Render the view with the tokenizer of the rollouts.",
        )


def _teacher_targets(
    student: StudentSequence, teacher: AlignedSequence, positions: Sequence[int]
) -> list[int]:
    """Return the teacher's target positions after checking every segment that they depend on."""
    last = positions[-1] if positions else -1
    needed = [span for span in student.spans if span.start <= last]
    theirs = _by_key(student, "teacher", teacher.spans)
    _by_key(student, "student", needed)
    starts = {}
    cursor = -1
    for span in needed:
        match = theirs.get(span.segment_key)
        if match is None or match.start <= cursor:
            problem = "is missing from" if match is None else "is out of order in"
            raise _segment_error(student, span, f"{problem} the teacher's view")
        _check_verbatim(student, teacher, span, match)
        starts[span.segment_key] = cursor = match.start
    # Never 0: what precedes a target on the student's side precedes it here too, checked above.
    return [
        starts[span.segment_key] + position - span.start
        for span, position in _located(student.spans, positions)
    ]


def _by_key(student: StudentSequence, side: str, spans: Sequence[Span]) -> dict[str, Span]:
    found: dict[str, Span] = {}
    for span in spans:
        if not span.segment_key or span.segment_key in found:
            problem = "occurs twice on" if span.segment_key else "has no key on"
            raise _segment_error(student, span, f"{problem} the {side}'s side")
        found[span.segment_key] = span
    return found


def _check_verbatim(
    student: StudentSequence, teacher: AlignedSequence, span: Span, match: Span
) -> None:
    length, other = span.end - span.start, match.end - match.start
    if length != other:
        raise _segment_error(student, span, f"has {length} tokens but {other} for the teacher")
    ours = student.token_ids[span.start : span.end]
    theirs = teacher.token_ids[match.start : match.end]
    for offset, (our_id, their_id) in enumerate(zip(ours, theirs, strict=True)):
        if our_id != their_id:
            raise _segment_error(
                student, span, f"has token {our_id} at {offset} but {their_id} for the teacher"
            )


def _segment_error(student: StudentSequence, span: Span, what: str) -> AlignmentError:
    return AlignmentError(
        f"{student.trajectory_id}: segment {span.segment_key!r} {what}",
        "The teacher must read the student's segments verbatim, plus its own.",
    )


def _located(spans: Sequence[Span], positions: Sequence[int]) -> Iterator[tuple[Span, int]]:
    """Yield each ascending position with the span that holds it."""
    remaining = iter(spans)
    span = next(remaining, None)
    for position in positions:
        while span is not None and span.end <= position:
            span = next(remaining, None)
        if span is not None:
            yield span, position
