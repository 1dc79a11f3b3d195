"""One episode: turns of a model, calls of tools, and exactly one reason to end."""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from core.environments.base import (
    Environment,
    FailureCategory,
    StepResult,
    Task,
    ToolCall,
)
from core.environments.protocol import (
    CALL_OPEN,
    FINAL_OPEN,
    ParsedTurn,
    parse_turn,
    render_tool_result,
)
from core.errors import OpdError
from core.rollout.decoder import GeneratedTurn
from core.rollout.limits import EpisodeLimits
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import (
    Counters,
    TerminationReason,
    ToolCallRecord,
    ToolResultRecord,
    Trajectory,
    Turn,
    VerificationRecord,
)
from core.trajectory.transcript import Transcript, turn_text

logger = logging.getLogger(__name__)

UNPARSED = "<unparsed>"
"""Name of the call in the record of a turn that could not be read."""


class Episode:
    """The state machine between a model and an environment.

    ``begin``, then ``take`` every generated turn, until ``reason`` is set. A tool or verifier that
    raises ends its episode with a reason and an observation of its own; it never ends the others.

    Args:
        environment: The world; its own, for the length of the episode.
        task: What to solve.
        codec: The model's tokenizer.
        limits: When to stop.
        raise_defects: Raise what the environment raises, where a broken episode must not pass for
            data.
    """

    def __init__(
        self,
        environment: Environment,
        task: Task,
        codec: TokenCodec,
        limits: EpisodeLimits,
        *,
        raise_defects: bool = False,
    ) -> None:
        self.task = task
        self.transcript = Transcript(codec)
        self.reason: TerminationReason | None = None
        """Why it ended; None while it goes on."""
        self._environment = environment
        self._codec = codec
        self._limits = limits
        self._raise_defects = raise_defects
        self._turns: list[Turn] = []
        self._events: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._verification = VerificationRecord(
            solved=False,
            reward=0.0,
            expected=task.answer,
            failure_category=FailureCategory.NO_FINAL_ANSWER,
        )
        self._metadata: dict[str, Any] = {}

    @property
    def turn(self) -> int:
        """Index of the turn that comes next."""
        return self.transcript.num_turns

    @property
    def budget(self) -> int:
        """Tokens that the next turn may have: at least 1 while the episode goes on."""
        remaining = self._limits.max_total_tokens - len(self.transcript.token_ids)
        return min(self._limits.max_new_tokens_per_turn, remaining)

    def begin(self) -> list[int]:
        """Reset the environment and return the prompt. The episode may end with it."""
        try:
            observation = self._environment.reset(self.task)
        except Exception as error:
            self._end_by_defect(error)
            return self.transcript.start(self._environment.system_prompt(), self.task.prompt)
        self._metadata["initial_observation_state_id"] = observation.state_id
        token_ids = self.transcript.start(self._environment.system_prompt(), observation.text)
        self._open_turn()
        return token_ids

    def take(self, turn: GeneratedTurn) -> list[int]:
        """Record a generated turn, act on it, and return what the model reads next.

        Returns:
            Ids of the observation; of no use once ``reason`` is set.
        """
        text = turn_text(self._codec, turn.token_ids)
        parsed = parse_turn(text)
        call_id = f"c{self.turn}" if parsed.kind == "tool_call" else None
        self.transcript.add_generated(
            turn.token_ids,
            parsed,
            logprobs=turn.logprobs or None,
            kept_mass=turn.kept_mass,
            tool_call_id=call_id,
        )
        self._events["assistant_turns"] += 1
        self._events["emitted_tool_calls"] += CALL_OPEN in text
        self._events["final_answers_emitted"] += FINAL_OPEN in text
        if parsed.kind == "final":
            return self._answer(parsed.final_answer or "")
        if parsed.kind == "parse_error":
            return self._refuse(parsed, closed=turn.stop == "eos")
        return self._call(ToolCall(parsed.tool_name or "", parsed.arguments or {}))

    def build(self, metadata: Mapping[str, Any], **facts: Any) -> Trajectory:
        """Return the finished episode.

        Args:
            metadata: Facts about the rollout, beside those of task and environment.
            facts: ``trajectory_id``, ``policy_version`` and ``model_digest`` of ``Trajectory``.
        """
        own = {"difficulty": self.task.difficulty, "split": self.task.split, **self._metadata}
        return self.transcript.build(
            turns=self._turns,
            task_id=self.task.task_id,
            environment=self._environment.name,
            verification=self._verification,
            termination_reason=self.reason,
            counters=Counters(**self._events),
            metadata={**metadata, **own, **self._environment.trajectory_metadata(self.task)},
            **facts,
        )

    def _open_turn(self) -> None:
        if self.turn >= self._limits.max_turns:
            self.reason = TerminationReason.MAX_TURNS
        elif self.budget <= 0:
            self.reason = TerminationReason.MAX_TOKENS

    def _answer(self, answer: str) -> list[int]:
        self._turns.append(Turn(turn_id=self.turn - 1, is_final=True))
        try:
            verdict = self._environment.verify(answer)
        except Exception as error:
            defect = {"predicted": answer, "failure_category": FailureCategory.TOOL_ERROR}
            self._verification = self._verification.model_copy(update=defect)
            self._end_by_defect(error)
            return []
        self._verification = VerificationRecord(
            solved=verdict.solved,
            reward=verdict.reward,
            predicted=verdict.predicted,
            expected=verdict.expected,
            failure_category=verdict.failure_category,
            detail=verdict.detail,
        )
        malformed = verdict.failure_category is FailureCategory.MALFORMED_ANSWER
        self._events["final_answers_verified"] += 1
        self._events["final_answers_format_valid"] += not malformed
        self.reason = TerminationReason.FINAL_ANSWER
        return []

    def _refuse(self, parsed: ParsedTurn, *, closed: bool) -> list[int]:
        """Tell the model that its turn cannot be read, unless it has closed it or failed too often.

        Args:
            parsed: What the parser found.
            closed: Whether the model ended the turn itself: it had nothing more to say.
        """
        self._events["parse_errors"] += 1
        self._events["invalid_tool_calls"] += 1
        error = str(parsed.error)
        record = ToolCallRecord(
            call_id=f"c{self.turn - 1}", name=UNPARSED, valid=False, parse_error=error
        )
        self._turns.append(Turn(turn_id=self.turn - 1, tool_call=record))
        if closed:
            self.reason = TerminationReason.EOS_WITHOUT_FINAL
            return []
        if self._events["parse_errors"] >= max(self._limits.max_parse_errors, 1):
            self.reason = TerminationReason.PARSE_ERROR_LIMIT
            return []
        token_ids = self.transcript.add_observation(render_tool_result(ok=False, error=error))
        self._open_turn()
        return token_ids

    def _call(self, call: ToolCall) -> list[int]:
        self._events["parsed_tool_calls"] += 1
        signature = json.dumps([call.name, call.arguments], sort_keys=True)
        self._calls[signature] += 1
        if self._calls[signature] > self._limits.max_repeated_calls:
            self._events["repeated_call_terminations"] += 1
            self.reason = TerminationReason.REPEATED_CALL_LIMIT
            times = self._limits.max_repeated_calls
            error = f"this call was made more than {times} times; the episode is over"
            return self._observe(call, StepResult(ok=False, state_id="", error=error))
        try:
            result = self._environment.step(call)
        except Exception as error:
            message = self._end_by_defect(error)
            result = StepResult(ok=False, state_id="", error=f"the tool broke: {message}")
            self._events["tool_execution_errors"] += 1
            return self._observe(call, result)
        self._count(result)
        token_ids = self._observe(call, result)
        self._open_turn()
        return token_ids

    def _count(self, result: StepResult) -> None:
        unknown = result.failure_category is FailureCategory.UNKNOWN_TOOL
        self._events["tool_execution_successes"] += result.ok
        self._events["tool_execution_errors"] += not result.ok
        self._events["invalid_tool_calls"] += not result.ok
        self._events["unknown_tool_calls"] += not result.ok and unknown

    def _observe(self, call: ToolCall, result: StepResult) -> list[int]:
        """Record a call and its result, and return the result as the model reads it."""
        turn_id, call_id = self.turn - 1, f"c{self.turn - 1}"
        outcome = ToolResultRecord(
            call_id=call_id,
            ok=result.ok,
            result=result.result,
            error=result.error,
            error_code=result.error_code,
            retryable=result.retryable,
            intervention=result.intervention,
            env_state_id=result.state_id or None,
            metadata=dict(result.metadata),
        )
        request = ToolCallRecord(call_id=call_id, name=call.name, arguments=dict(call.arguments))
        self._turns.append(Turn(turn_id=turn_id, tool_call=request, tool_result=outcome))
        text = render_tool_result(
            result.ok,
            result.result,
            result.error,
            code=result.error_code,
            retryable=result.retryable,
            intervention=result.intervention,
            metadata=result.metadata,
        )
        return self.transcript.add_observation(
            text,
            tool_name=call.name,
            tool_call_id=call_id,
            env_state_id=result.state_id or None,
        )

    def _end_by_defect(self, error: Exception) -> str:
        """End the episode because the environment raised, and return what it said."""
        if self._raise_defects:
            raise error
        known = isinstance(error, OpdError)
        message = error.message if known else f"{type(error).__name__}: {error}"
        logger.warning("%s: the environment raised: %s", self.task.task_id, message)
        self._metadata["environment_error"] = message
        self.reason = TerminationReason.ENVIRONMENT_ERROR
        return message
