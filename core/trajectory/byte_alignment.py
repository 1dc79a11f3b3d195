"""Where two tokenizers agree: the bytes at which a token of either side ends.

The teacher reads the text of every segment in its own tokens. Each segment is encoded by itself, so
that no token of the teacher crosses the border of a span: neither a tool call nor an end of turn
runs into its neighbour. Inside a span of the student, the places where a token ends on both sides
cut it into chunks, each a few tokens here and a few there over the same bytes.

A boundary counts only where the decoded prefix is a prefix of the decoded whole. A token that ends
inside a character, or a tokenizer that rewrites its text, therefore widens a chunk or leaves bytes
unaligned; it never pairs different bytes.

At such a boundary both models also stand at the same byte and are about to say what comes next: a
meeting, where their distributions can be compared whatever the student's next token is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.errors import AlignmentError
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory

REPLACEMENT = "\ufffd"
"""What decoders show for bytes that form no character; the other side would read other bytes."""


@dataclass(frozen=True)
class Chunk:
    """The same bytes in the tokens of both sides; half-open, positions of target tokens."""

    student_start: int
    student_stop: int
    teacher_start: int
    teacher_stop: int
    num_bytes: int


@dataclass(frozen=True)
class Meeting:
    """A byte inside a span of the student at which a token of either side begins.

    Positions are of target tokens, as everywhere: the logits one before them are compared.
    """

    student_position: int
    teacher_position: int
    num_bytes: int
    """Bytes from here to the next place where a token of the student ends."""


@dataclass(frozen=True)
class ByteAlignment:
    """An episode as the teacher's tokenizer writes it."""

    teacher_ids: list[int]
    """What the teacher reads."""
    chunks: list[Chunk]
    """Over the student's spans, ascending."""
    meetings: list[Meeting]
    """The same, for what either side says next."""
    model_bytes: int
    """Bytes that the student wrote."""
    unaligned_bytes: int
    """Those of them in no chunk."""


def align_bytes(
    trajectory: Trajectory, student_codec: TokenCodec, teacher_codec: TokenCodec
) -> ByteAlignment:
    """Write an episode in the teacher's tokens and find the chunks of what the student wrote.

    Args:
        trajectory: What the student did.
        student_codec: The tokenizer of its ids.
        teacher_codec: The teacher's.

    Returns:
        The teacher's tokens, and chunks and meetings over the student's spans.

    Raises:
        AlignmentError: Another tokenizer made the trajectory's ids.
    """
    if trajectory.tokenizer_digest != student_codec.digest:
        raise AlignmentError(
            f"{trajectory.trajectory_id} was made by another tokenizer than the student's",
            "Use the tokenizer of the rollouts.",
        )
    teacher_ids: list[int] = []
    chunks: list[Chunk] = []
    meetings: list[Meeting] = []
    model_bytes = 0
    before = ""
    for span in trajectory.spans:
        own = trajectory.token_ids[span.start : span.end]
        text = student_codec.decode(own)
        theirs = teacher_codec.encode(text)
        starts = (span.start, len(teacher_ids))
        teacher_ids += theirs
        previous, before = before, text
        if not span.is_model:
            continue
        ends = boundaries(own, student_codec, text), boundaries(theirs, teacher_codec, text)
        model_bytes += len(text.encode())
        # Nothing predicts the first token of a sequence.
        chunks += [
            chunk
            for chunk in _chunks(text.encode(), *ends, starts)
            if chunk.student_start > 0 and chunk.teacher_start > 0
        ]
        meetings += [
            meeting
            for meeting in _meetings(previous, text, *ends, starts)
            if meeting.student_position > 0 and meeting.teacher_position > 0
        ]
    aligned_bytes = sum(chunk.num_bytes for chunk in chunks)
    return ByteAlignment(teacher_ids, chunks, meetings, model_bytes, model_bytes - aligned_bytes)


def boundaries(token_ids: Sequence[int], codec: TokenCodec, text: str) -> dict[int, int]:
    """Return where tokens end between characters: bytes so far to tokens so far.

    Of several tokens that end at one byte, the last one counts; 0 bytes are 0 tokens.

    Args:
        token_ids: Tokens of one span.
        codec: Their tokenizer.
        text: The span's text, as both sides must spell it.
    """
    ends = {0: 0}
    for count in range(1, len(token_ids) + 1):
        prefix = codec.decode(token_ids[:count])
        if text.startswith(prefix):
            ends[len(prefix.encode())] = count
    return ends


def _chunks(
    spelled: bytes, student: dict[int, int], teacher: dict[int, int], starts: tuple[int, int]
) -> Iterator[Chunk]:
    """Yield what lies between neighbouring bytes at which both sides have a boundary."""
    shared = sorted(student.keys() & teacher.keys())
    for first, last in pairwise(shared):
        if REPLACEMENT.encode() in spelled[first:last]:
            continue
        yield Chunk(
            student_start=starts[0] + student[first],
            student_stop=starts[0] + student[last],
            teacher_start=starts[1] + teacher[first],
            teacher_stop=starts[1] + teacher[last],
            num_bytes=last - first,
        )


def _meetings(
    previous: str,
    text: str,
    student: dict[int, int],
    teacher: dict[int, int],
    starts: tuple[int, int],
) -> Iterator[Meeting]:
    """Yield the bytes of a span at which a token of either side begins.

    After bytes that form no character the student waits for the rest of them and the teacher, who
    read the replacement, does not: such a place is no meeting.
    """
    spelled, broken = text.encode(), REPLACEMENT.encode()
    for first, last in pairwise(sorted(student)):
        heard = spelled[:first] if first else previous.encode()
        if first not in teacher or heard.endswith(broken):
            continue
        yield Meeting(
            student_position=starts[0] + student[first],
            teacher_position=starts[1] + teacher[first],
            num_bytes=last - first,
        )
