"""How long a prompt is in tokens, and what is cut from one that is too long.

A prompt is measured as the student reads it: framed system and user message and the header of the
response. What is cut is the user message; the frames, the system message and the header stay, so a
shortened prompt is still a conversation.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from core.errors import PromptFileError, TrajectoryError
from core.prompts.row import PromptRow
from core.trajectory.template import CHATML, Template
from core.trajectory.tokens import TokenCodec
from core.trajectory.transcript import Transcript

Side = Literal["left", "right"]


def prompt_length(row: PromptRow, codec: TokenCodec, template: Template = CHATML) -> int:
    """Return the tokens of a prompt as the student reads it.

    Args:
        row: The prompt.
        codec: The student's tokenizer.
        template: How messages are framed.

    Raises:
        PromptFileError: A message holds a control text of the chat frames.
    """
    try:
        return len(Transcript(codec, template).start(row.system, row.user))
    except TrajectoryError as error:
        raise PromptFileError(f"{row.place}: {error.message}", error.hint) from error


def shortened(
    row: PromptRow, codec: TokenCodec, limit: int, side: Side, template: Template = CHATML
) -> PromptRow:
    """Return a row whose prompt has ``limit`` tokens at most.

    Args:
        row: A prompt that is longer.
        codec: The student's tokenizer.
        limit: Tokens of the whole prompt.
        side: Where the user message loses tokens: ``left`` its start, ``right`` its end.
        template: How messages are framed.

    Raises:
        PromptFileError: What remains of the user message would be empty.
    """
    token_ids = codec.encode(row.user)
    cut = _cutter(row, codec, token_ids, side)
    # Text that is cut between tokens may need a few tokens more than it was cut from.
    keep = len(token_ids) - max(1, prompt_length(row, codec, template) - limit)
    while keep > 0 and prompt_length(cut(keep), codec, template) > limit:
        keep -= 1
    if keep <= 0 or not cut(keep).user.strip():
        raise PromptFileError(
            f"{row.place}: system message and frames leave no prompt in {limit} tokens",
            "Raise source.max_prompt_length.",
        )
    return cut(keep)


def _cutter(
    row: PromptRow, codec: TokenCodec, token_ids: list[int], side: Side
) -> Callable[[int], PromptRow]:
    def cut(keep: int) -> PromptRow:
        kept = token_ids[len(token_ids) - keep :] if side == "left" else token_ids[:keep]
        # A cut inside a character leaves the sign for an unreadable one, which nobody wrote.
        return replace(row, user=codec.decode(kept).strip("\ufffd"))

    return cut
