"""A reversible tokenizer small enough for a CPU: greedy longest match over a fixed list.

Control tags come first, then single characters, then the fragments that our own transcripts repeat
(role headers, JSON scaffolding of tool calls and results, words of the prompts; see
``core.models.toy_fragments``), then one token per byte that no other entry covers. No digit is part
of a fragment: a number is copied digit by digit.
Every text without lone surrogates survives ``decode(encode(text))``.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from core.errors import InputError
from core.models.toy_fragments import FRAGMENTS
from core.trajectory.tokens import Piece, TokenRole

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_result>",
    "</tool_result>",
    "<final>",
    "</final>",
)
"""Ids 0 to 8. Id 0 pads; ``<|im_end|>`` ends a turn."""

CHARACTERS = ("\t", "\n", "\r", *(chr(code) for code in range(32, 127)))

_COVERED = frozenset(ord(character) for character in CHARACTERS)
BYTES = tuple(byte for byte in range(256) if byte not in _COVERED)
"""Bytes of UTF-8 text that no single character covers, each a token of its own."""


class ToyTokenizer:
    """The toy pair's ``TokenCodec``; every instance of one vocabulary is equal.

    Args:
        vocabulary: Name of its fragments.
    """

    pad_id = 0
    eos_ids = (2,)

    def __init__(self, vocabulary: str = "calculator") -> None:
        entries = (*SPECIALS, *_characters(vocabulary), *FRAGMENTS[vocabulary])
        self._texts = [*(text.encode() for text in entries), *(bytes([b]) for b in BYTES)]
        self._ids = {text: index for index, text in enumerate(entries)}
        self._byte_ids = {byte: len(entries) + index for index, byte in enumerate(BYTES)}
        longest_first = sorted(entries, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) + "|.", re.DOTALL)
        self.vocab_size = len(self._texts)
        blob = json.dumps([text.hex() for text in self._texts]).encode()
        self.digest = hashlib.sha256(blob).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, longest entry first; adds nothing.

        Raises:
            InputError: ``text`` holds a lone surrogate, which no UTF-8 text can.
        """
        token_ids: list[int] = []
        for piece in self._pattern.findall(text):
            index = self._ids.get(piece)
            if index is None:
                token_ids.extend(self._byte_ids[byte] for byte in _utf8(piece))
            else:
                token_ids.append(index)
        return token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids; bytes that form no character become U+FFFD."""
        return b"".join(self._texts[index] for index in token_ids).decode("utf-8", "replace")

    def pieces(self) -> Mapping[int, Piece]:
        """Return the bytes and the role of every id."""
        return {index: Piece(text, self._role(index)) for index, text in enumerate(self._texts)}

    def _role(self, index: int) -> TokenRole:
        if index in self.eos_ids:
            return TokenRole.END
        return TokenRole.CONTROL if index < len(SPECIALS) else TokenRole.TEXT


def _characters(vocabulary: str) -> Sequence[str]:
    """Return the single characters in the order of their ids, which no two families share."""
    return CHARACTERS[::-1] if vocabulary == "second" else CHARACTERS


def _utf8(character: str) -> bytes:
    try:
        return character.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text holds a lone surrogate, U+{ord(character):04X}",
            "Surrogates stand for half a character; remove it or write the whole character.",
        ) from error
