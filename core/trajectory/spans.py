"""Typed spans: who wrote which tokens."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class SpanType(StrEnum):
    """Author and role of a run of tokens."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT_TEXT = "assistant_text"
    ASSISTANT_TOOL_CALL = "assistant_tool_call"
    TOOL_RESULT = "tool_result"
    ASSISTANT_FINAL = "assistant_final"


MODEL_SPANS = frozenset(
    {SpanType.ASSISTANT_TEXT, SpanType.ASSISTANT_TOOL_CALL, SpanType.ASSISTANT_FINAL}
)
"""Spans that the student sampled; every other token is context and is never trained."""

CRITICAL_SPANS = frozenset({SpanType.ASSISTANT_TOOL_CALL, SpanType.ASSISTANT_FINAL})
"""Model spans that decide the episode: typed blocks, not the prose before them."""


class Span(BaseModel):
    """Tokens ``[start, end)`` of one trajectory, all of one author."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    span_type: SpanType
    start: int = Field(ge=0)
    end: int
    segment_key: str
    """Name that matches this span between the student's and the teacher's view:
    ``sys``, ``user``, ``privileged`` (teacher only), ``gen:{turn}:text``, ``gen:{turn}:block``,
    ``obs:{turn}``."""
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
