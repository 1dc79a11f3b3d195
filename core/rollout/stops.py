"""Where a turn ends: an end-of-turn token, or a stop text that its last token completes."""

from collections.abc import Mapping, Sequence
from typing import Literal

from core.trajectory.tokens import TokenCodec

StopReason = Literal["eos", "stop", "length"]
"""Why a turn ended: the model closed it, a stop text was complete, or its tokens ran out."""

REPLACEMENT = "\ufffd"


class StopScanner:
    """Finds the end of a turn one token at a time, decoding a bounded suffix and only rarely.

    A stop text can only be completed by a token whose own text holds the stop's last character, so
    all other tokens cost one dictionary look-up.

    Args:
        codec: Decodes sampled ids.
        stop_texts: Texts that end a turn once they are complete, or how often each must be.
    """

    def __init__(self, codec: TokenCodec, stop_texts: Sequence[str] | Mapping[str, int]) -> None:
        self._codec = codec
        self._eos_ids = frozenset(codec.eos_ids)
        counted = isinstance(stop_texts, Mapping)
        self._times = dict(stop_texts) if counted else dict.fromkeys(stop_texts, 1)
        self._closing = {text[-1] for text in stop_texts}
        self._may_close: dict[int, bool] = {}
        # Every token holds at least one byte; the slack covers a character cut at the start.
        self._suffix = max((len(text.encode()) for text in stop_texts), default=0) + 4

    def reason(self, token_ids: Sequence[int], budget: int) -> StopReason | None:
        """Return why the turn ends with its last token, or None if it goes on.

        Args:
            token_ids: The turn so far, for which every shorter turn went on.
            budget: Tokens that the turn may have.
        """
        last = token_ids[-1]
        if last in self._eos_ids:
            return "eos"
        may_close = self._may_close.get(last)
        if may_close is None:
            may_close = self._may_close[last] = self._closes(last)
        if may_close and self._is_complete(token_ids):
            return "stop"
        return "length" if len(token_ids) >= budget else None

    def _closes(self, token_id: int) -> bool:
        text = self._codec.decode([token_id])
        # Part of a character decodes to the replacement sign: it might end in any character.
        return REPLACEMENT in text or any(character in text for character in self._closing)

    def _is_complete(self, token_ids: Sequence[int]) -> bool:
        text = self._codec.decode(token_ids[-self._suffix :])
        found = [times for stop, times in self._times.items() if stop in text]
        if not found or min(found) == 1:
            return bool(found)
        # Rare: the whole turn is decoded only where a text that must recur has just done so.
        whole = self._codec.decode(token_ids)
        return any(whole.count(stop) >= times for stop, times in self._times.items())
