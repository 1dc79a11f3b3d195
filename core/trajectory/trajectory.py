"""One episode as it happened: every token with its author, turn and behaviour log-probability.

Masks are never stored. They follow from the spans, and the spans are checked on every read and
write, so no file can make a tool's output trainable.
"""

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.trajectory.masks import (
    SpanTuple,
    check_tiling,
    critical_mask,
    model_mask,
    target_positions,
)
from core.trajectory.spans import Span, SpanType

SCHEMA_VERSION = 2

LOGPROB_SLACK = 1e-4
"""How far rounding may lift the log of a probability above 0."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
TokenId = Annotated[int, Field(ge=0)]


class TerminationReason(StrEnum):
    """Why an episode ended."""

    FINAL_ANSWER = "final_answer"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    PARSE_ERROR_LIMIT = "parse_error_limit"
    REPEATED_CALL_LIMIT = "repeated_call_limit"
    ENVIRONMENT_ERROR = "environment_error"
    EOS_WITHOUT_FINAL = "eos_without_final"


class Row(BaseModel):
    """Base of every stored record here: immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ToolCallRecord(Row):
    """What the student asked for; ``valid`` is False where it could not be read."""

    call_id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    valid: bool = True
    parse_error: str | None = None


class ToolResultRecord(Row):
    """What the environment answered."""

    call_id: str
    ok: bool
    result: str = ""
    error: str | None = None
    error_code: str | None = None
    retryable: bool = False
    intervention: bool = False
    env_state_id: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class Turn(Row):
    """One turn of the student and the observation that followed it."""

    turn_id: int
    tool_calls: list[ToolCallRecord] = Field(default_factory=list)
    """In the order in which they were written and run."""
    tool_results: list[ToolResultRecord] = Field(default_factory=list)
    """In the order of the calls."""
    is_final: bool = False

    @model_validator(mode="after")
    def _results_answer_calls(self) -> Self:
        asked = [call.call_id for call in self.tool_calls]
        answered = [result.call_id for result in self.tool_results]
        if len(set(asked)) != len(asked) or answered != asked[: len(answered)]:
            raise ValueError(f"turn {self.turn_id} has results {answered} for calls {asked}")
        return self


class VerificationRecord(Row):
    """The environment's verdict on the final answer."""

    solved: bool
    reward: Finite
    predicted: str | None = None
    expected: str | None = None
    failure_category: str
    detail: str | None = None


class Counters(Row):
    """Events of one episode."""

    assistant_turns: Count = 0
    emitted_tool_calls: Count = 0
    parsed_tool_calls: Count = 0
    invalid_tool_calls: Count = 0
    tool_execution_successes: Count = 0
    tool_execution_errors: Count = 0
    unknown_tool_calls: Count = 0
    parse_errors: Count = 0
    repeated_call_terminations: Count = 0
    final_answers_emitted: Count = 0
    final_answers_format_valid: Count = 0
    final_answers_verified: Count = 0


class Trajectory(Row):
    """Tokens of one episode, tiled by typed spans."""

    schema_version: Literal[2] = SCHEMA_VERSION
    trajectory_id: str
    parent_id: str | None = None
    """Episode that this branch belongs to; None where nothing was rewritten."""
    branch_index: Annotated[int, Field(ge=0)] = 0
    """Place among the branches of the episode."""
    branches: Annotated[int, Field(ge=1)] = 1
    """Branches of the episode; the last of them tells of the whole episode."""
    task_id: str
    environment: str
    token_ids: list[TokenId]
    spans: list[Span]
    """Ascending and tiling ``[0, len(token_ids))`` without gap or overlap."""
    turns: list[Turn] = Field(default_factory=list)
    logprobs: list[Finite] = Field(default_factory=list)
    """Nats; one per model token in ascending position, under the distribution it was drawn from.
    Empty where nothing was sampled (oracle traces)."""
    kept_mass: list[Finite] = Field(default_factory=list)
    """Probability that top-p or top-k kept, one per model token; empty when untruncated."""
    policy_version: Count = 0
    """Parameter version of the student that sampled it."""
    tokenizer_digest: str
    model_digest: str | None = None
    """Content digest of the weights that sampled it; None for oracle traces."""
    verification: VerificationRecord
    termination_reason: TerminationReason
    counters: Counters = Field(default_factory=Counters)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _spans_tile_the_tokens(self) -> Self:
        if not self.token_ids:
            raise ValueError("token_ids is empty")
        check_tiling(self._tiles(), len(self.token_ids))
        return self

    @model_validator(mode="after")
    def _branch_is_one_of_its_episode(self) -> Self:
        if self.branch_index >= self.branches:
            raise ValueError(f"branch_index {self.branch_index} is not below {self.branches}")
        if (self.parent_id is None) != (self.branches == 1):
            raise ValueError(f"parent_id is {self.parent_id!r} with {self.branches} branches")
        return self

    @model_validator(mode="after")
    def _spans_belong_to_turns(self) -> Self:
        known = {turn.turn_id for turn in self.turns}
        if len(known) != len(self.turns):
            raise ValueError("turns repeat a turn_id")
        for index, span in enumerate(self.spans):
            if self.turns and span.turn_id is not None and span.turn_id not in known:
                raise ValueError(f"spans[{index}].turn_id {span.turn_id} is not a turn")
        return self

    @model_validator(mode="after")
    def _segment_keys_name_their_spans(self) -> Self:
        keys = [span.segment_key for span in self.spans]
        if len(set(keys)) != len(keys):
            raise ValueError("spans repeat a segment_key")
        for index, span in enumerate(self.spans):
            if not span.key_agrees:
                raise ValueError(
                    f"spans[{index}].segment_key is {span.segment_key!r} "
                    f"but the span is {span.span_type} of turn {span.turn_id}"
                )
        return self

    @model_validator(mode="after")
    def _spans_agree_with_turns(self) -> Self:
        turns = {turn.turn_id: turn for turn in self.turns}
        for index, span in enumerate(self.spans):
            turn = turns.get(span.turn_id) if span.turn_id is not None else None
            if turn is None:
                continue
            if span.span_type is SpanType.ASSISTANT_FINAL and not turn.is_final:
                raise ValueError(f"spans[{index}] is an answer, but turn {span.turn_id} is none")
            asked = {call.call_id for call in turn.tool_calls}
            if span.tool_call_id is not None and asked and span.tool_call_id not in asked:
                raise ValueError(
                    f"spans[{index}].tool_call_id is {span.tool_call_id!r}, "
                    f"but turn {span.turn_id} has the calls {sorted(asked)}"
                )
        return self

    @model_validator(mode="after")
    def _counts_and_reason_agree_with_turns(self) -> Self:
        calls = [call for turn in self.turns for call in turn.tool_calls if call.valid]
        results = [result for turn in self.turns for result in turn.tool_results if result.ok]
        implied = {
            "assistant_turns": len(self.turns),
            "parsed_tool_calls": len(calls),
            "tool_execution_successes": len(results),
        }
        for name, count in implied.items():
            counted = getattr(self.counters, name)
            if self.counters.assistant_turns and self.turns and counted != count:
                raise ValueError(f"counters.{name} is {counted}, but the turns have {count}")
        answered = any(turn.is_final for turn in self.turns)
        ended_so = self.termination_reason is TerminationReason.FINAL_ANSWER
        if self.turns and ended_so and self.is_whole and not answered:
            raise ValueError("termination_reason is final_answer, but no turn is final")
        return self

    @model_validator(mode="after")
    def _numbers_are_probabilities(self) -> Self:
        if any(logprob > LOGPROB_SLACK for logprob in self.logprobs):
            raise ValueError("logprobs has a positive entry")
        if any(not 0.0 < mass <= 1.0 + LOGPROB_SLACK for mass in self.kept_mass):
            raise ValueError("kept_mass has an entry outside (0, 1]")
        return self

    @model_validator(mode="after")
    def _verdict_agrees_with_its_category(self) -> Self:
        if self.verification.solved != (self.verification.failure_category == "solved"):
            raise ValueError(
                f"verification.solved is {self.verification.solved} "
                f"but failure_category is {self.verification.failure_category!r}"
            )
        return self

    @model_validator(mode="after")
    def _one_number_per_model_token(self) -> Self:
        sampled = sum(span.end - span.start for span in self.spans if span.is_model)
        for name in ("logprobs", "kept_mass"):
            count = len(getattr(self, name))
            if count not in (0, sampled):
                raise ValueError(f"{name} has {count} entries for {sampled} model tokens")
        return self

    @cached_property
    def model_mask(self) -> list[bool]:
        """Per token: did the student sample it."""
        return model_mask(self._tiles(), len(self.token_ids))

    @cached_property
    def critical_mask(self) -> list[bool]:
        """Per token: is it part of a typed block of the student."""
        return critical_mask(self._tiles(), len(self.token_ids))

    @cached_property
    def span_types(self) -> list[SpanType]:
        """Per token: type of its span."""
        return [span.span_type for span in self.spans for _ in range(span.start, span.end)]

    def target_positions(self) -> list[int]:
        """Ascending positions of the model's tokens, without position 0: nothing predicts it."""
        return target_positions(self.model_mask)

    @property
    def episode_id(self) -> str:
        """Name that the branches of one episode share."""
        return self.parent_id or self.trajectory_id

    @property
    def is_whole(self) -> bool:
        """Whether this row tells of its whole episode: it is the last or only branch."""
        return self.branch_index == self.branches - 1

    @property
    def solved(self) -> bool:
        """Whether the environment accepted the final answer."""
        return self.verification.solved

    def _tiles(self) -> list[SpanTuple]:
        return [(span.span_type.value, span.start, span.end) for span in self.spans]
