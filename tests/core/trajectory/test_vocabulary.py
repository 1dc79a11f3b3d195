import pytest

from core.errors import TokenizerMismatchError
from core.models.toy_tokenizer import BYTES, CHARACTERS, SPECIALS, ToyTokenizer
from core.trajectory.tokens import Piece, TokenRole
from core.trajectory.vocabulary import shared_vocabulary

TEXT, CONTROL, END = TokenRole.TEXT, TokenRole.CONTROL, TokenRole.END


class Listed:
    """A codec that is nothing but a list of pieces."""

    pad_id, eos_ids, digest = 0, (), "listed"

    def __init__(self, *pieces):
        self._pieces = {i: Piece(content, role) for i, (content, role) in enumerate(pieces)}
        self.vocab_size = len(pieces)

    def pieces(self):
        return self._pieces

    def encode(self, text):
        return []

    def decode(self, token_ids):
        return ""


def pairs(own, theirs):
    found = shared_vocabulary(Listed(*own), Listed(*theirs))
    return list(zip(found.student_ids, found.teacher_ids, strict=True))


def test_text_matches_by_its_bytes_whatever_the_ids():
    own = [(b"a", TEXT), (b" b", TEXT), (b"\xc3", TEXT), (b"own", TEXT)]
    theirs = [(b"\xc3", TEXT), (b"theirs", TEXT), (b"a", TEXT), (b"b", TEXT)]
    assert pairs(own, theirs) == [(0, 2), (2, 0)]


def test_control_tags_match_those_of_equal_content_and_role_alone():
    """A tag that is text elsewhere, or that ends a turn here alone, is another token."""
    own = [(b"<end>", END), (b"<call>", CONTROL), (b"<x>", CONTROL), (b"a", TEXT)]
    theirs = [(b"<end>", CONTROL), (b"<call>", TEXT), (b"<x>", CONTROL), (b"a", TEXT)]
    assert pairs(own, theirs) == [(2, 2), (3, 3)]


def test_a_token_that_stands_twice_counts_once():
    assert pairs([(b"a", TEXT), (b"a", TEXT)], [(b"b", TEXT), (b"a", TEXT)]) == [(0, 1)]


def test_the_toy_vocabularies_share_characters_tags_and_some_fragments():
    first, second = ToyTokenizer(), ToyTokenizer("second")
    found = shared_vocabulary(first, second)
    least = len(SPECIALS) + len(CHARACTERS) + len(BYTES)
    assert least < len(found.student_ids) < min(first.vocab_size, second.vocab_size)
    assert found.student_ids != found.teacher_ids
    for own, theirs in zip(found.student_ids, found.teacher_ids, strict=True):
        assert first.pieces()[own] == second.pieces()[theirs]


def test_one_tokenizer_shares_everything_with_itself():
    found = shared_vocabulary(ToyTokenizer(), ToyTokenizer())
    assert found.student_ids == found.teacher_ids == tuple(range(ToyTokenizer().vocab_size))


def test_nothing_in_common_is_refused():
    with pytest.raises(TokenizerMismatchError, match="no token in common"):
        pairs([(b"a", TEXT)], [(b"b", TEXT)])


def test_a_tokenizer_that_does_not_say_its_bytes_is_refused():
    class Silent:
        vocab_size, pad_id, eos_ids, digest = 1, 0, (), "silent"
        encode, decode = Listed.encode, Listed.decode

    with pytest.raises(TokenizerMismatchError, match="does not say which bytes"):
        shared_vocabulary(Listed((b"a", TEXT)), Silent())
