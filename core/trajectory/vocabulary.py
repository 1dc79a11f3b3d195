"""Which tokens of two vocabularies are one and the same.

Text tokens match by their bytes, never by their id and never by how a vocabulary file happens to
write them. Control tags match control tags of the same content and the same role alone: a tag that
ends a turn here and does not there says something else, and text that merely looks like a tag is no
tag.
"""

from dataclasses import dataclass

from core.errors import TokenizerMismatchError
from core.trajectory.tokens import Piece, SpelledCodec, TokenCodec


@dataclass(frozen=True)
class SharedVocabulary:
    """Pairs of ids that stand for the same token, ascending in the student's."""

    student_ids: tuple[int, ...]
    teacher_ids: tuple[int, ...]
    """The teacher's id of each."""


def shared_vocabulary(student: TokenCodec, teacher: TokenCodec) -> SharedVocabulary:
    """Pair the tokens that both sides have.

    Where a side has the same token twice, its lowest id counts and the other pairs with nothing.

    Args:
        student: Tokenizer of the student.
        teacher: Tokenizer of the teacher.

    Raises:
        TokenizerMismatchError: A side cannot say what its tokens stand for, or nothing is shared.
    """
    own, theirs = _ids(student), _ids(teacher)
    pairs = sorted((own[piece], theirs[piece]) for piece in own.keys() & theirs.keys())
    if not pairs:
        raise TokenizerMismatchError(
            "student and teacher have no token in common",
            "Use loss.mode=verl_pg_k1, which compares sums over texts.",
        )
    return SharedVocabulary(
        student_ids=tuple(own_id for own_id, _ in pairs),
        teacher_ids=tuple(their_id for _, their_id in pairs),
    )


def _ids(codec: TokenCodec) -> dict[Piece, int]:
    if not isinstance(codec, SpelledCodec):
        raise TokenizerMismatchError(
            "a tokenizer does not say which bytes its tokens stand for",
            "Use loss.mode=verl_pg_k1, which compares sums over texts.",
        )
    found: dict[Piece, int] = {}
    for index, piece in sorted(codec.pieces().items()):
        found.setdefault(piece, index)
    return found
