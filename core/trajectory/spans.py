"""Typed spans: who wrote which tokens."""

import re
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from core.trajectory.masks import CRITICAL_SPAN_TYPES, MODEL_SPAN_TYPES


class SpanType(StrEnum):
    """Author and role of a run of tokens."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT_TEXT = "assistant_text"
    ASSISTANT_TOOL_CALL = "assistant_tool_call"
    TOOL_RESULT = "tool_result"
    ASSISTANT_FINAL = "assistant_final"
    HISTORY = "history"


MODEL_SPANS = frozenset(map(SpanType, MODEL_SPAN_TYPES))
"""Spans that the student sampled; every other token is context and is never trained."""

CRITICAL_SPANS = frozenset(map(SpanType, CRITICAL_SPAN_TYPES))
"""Model spans that decide the episode: typed blocks, not the prose before them."""

_TURN_KEY = re.compile(r"(gen|obs):([0-9]+)(:text|:block|)(?::[0-9]+)?")

_TYPES_OF_KEY: dict[str, frozenset[SpanType]] = {
    "sys": frozenset({SpanType.SYSTEM}),
    "privileged": frozenset({SpanType.SYSTEM}),
    "user": frozenset({SpanType.USER}),
    "gen:text": frozenset({SpanType.ASSISTANT_TEXT}),
    "gen:block": CRITICAL_SPANS,
    "obs": frozenset({SpanType.TOOL_RESULT}),
    "history": frozenset({SpanType.HISTORY}),
}


class Span(BaseModel):
    """Tokens ``[start, end)`` of one trajectory, all of one author."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    span_type: SpanType
    start: int = Field(ge=0)
    end: int
    segment_key: str
    """Name that matches this span between the student's and the teacher's view:
    ``sys``, ``user``, ``privileged`` (teacher only), ``gen:{turn}:text``, ``gen:{turn}:block``,
    ``obs:{turn}``, ``history`` (earlier turns as a template rewrote them); further blocks of a turn
    are ``gen:{turn}:block:1`` and so on."""
    text: str = ""
    turn_id: int | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    env_state_id: str | None = None

    @property
    def is_model(self) -> bool:
        """Whether the student sampled these tokens."""
        return self.span_type in MODEL_SPANS

    @property
    def is_critical(self) -> bool:
        """Whether these tokens form a typed block of the student."""
        return self.span_type in CRITICAL_SPANS

    @property
    def key_agrees(self) -> bool:
        """Whether the segment key tells of the same author and turn; foreign keys tell nothing.

        An edit of ``span_type`` alone, which would make a tool's output trainable, shows here.
        """
        match = _TURN_KEY.fullmatch(self.segment_key)
        if match and self.turn_id not in (None, int(match[2])):
            return False
        kind = match[1] + match[3] if match else self.segment_key
        return kind not in _TYPES_OF_KEY or self.span_type in _TYPES_OF_KEY[kind]
