"""The tool calls of one turn: run in order, answered together."""

import json
from collections import Counter

from core.environments.base import (
    Environment,
    FailureCategory,
    StepResult,
    ToolCall,
    VerificationResult,
)
from core.environments.protocol import ParsedTurn, render_tool_result
from core.environments.tool_limits import (
    NOT_RUN,
    TOOL_ERROR,
    bounded,
    failed,
    storable,
    timed_out,
)
from core.errors import OpdError
from core.rollout.world import World, WorldTimeoutError
from core.trajectory.trajectory import (
    TerminationReason,
    ToolCallRecord,
    ToolResultRecord,
    Turn,
    VerificationRecord,
)

UNPARSED = "<unparsed>"
"""Name of the call in the record of a turn that could not be read."""


class Exchange:
    """Runs the calls of one turn. A call that ends the episode keeps the later ones from running.

    Args:
        parsed: The turn.
        turn_id: Its index.
        environment: What the calls are made to.
        world: Runs it.
        made: How often each call was made in this episode; counts go on here.
        most: Times that one identical call is executed.
    """

    def __init__(
        self,
        parsed: ParsedTurn,
        turn_id: int,
        environment: Environment,
        world: World,
        made: Counter[str],
        most: int,
    ) -> None:
        self.calls = [ToolCall(call.name, call.arguments) for call in parsed.calls]
        self.call_ids = call_ids(turn_id, len(self.calls), environment.grammar.max_calls)
        self.results: list[StepResult] = []
        """Of the calls so far; in the end one per call."""
        self.events: Counter[str] = Counter()
        """What is counted in ``core.trajectory.trajectory.Counters``."""
        self.reason: TerminationReason | None = None
        """Why the episode ends with this turn, if it does."""
        self.defect: BaseException | None = None
        """What the environment raised."""
        self._turn_id, self._environment, self._world = turn_id, environment, world
        self._made, self._most = made, most
        self._running = False

    def advance(self) -> bool:
        """Go as far as the tools are done; return whether every call has its result."""
        while len(self.results) < len(self.calls):
            call = self.calls[len(self.results)]
            if self.reason is not None:
                error = "this call was not run: the one before it ended the episode"
                self.results.append(failed(error, NOT_RUN))
            elif not self._running and not self._start(call):
                self._stop_repeating()
            elif self._running and not self._finish(call):
                return False
        return True

    def turn(self) -> Turn:
        """Return the record of the turn."""
        asked = zip(self.call_ids, self.calls, strict=True)
        answered = zip(self.call_ids, self.results, strict=True)
        calls = [
            ToolCallRecord(call_id=own, name=call.name, arguments=dict(call.arguments))
            for own, call in asked
        ]
        results = [_record(own, result) for own, result in answered]
        return Turn(turn_id=self._turn_id, tool_calls=calls, tool_results=results)

    def observations(self) -> list[str]:
        """Return what the model reads together: the results, in the order of the calls."""
        named = self._environment.grammar.max_calls > 1
        answered = zip(self.call_ids, self.results, strict=True)
        return [_block(own if named else None, result) for own, result in answered]

    def _start(self, call: ToolCall) -> bool:
        signature = json.dumps([call.name, call.arguments], sort_keys=True)
        self._made[signature] += 1
        if self._made[signature] > self._most:
            return False
        self._world.call(call.name, lambda: self._environment.step(call))
        self._running = True
        return True

    def _stop_repeating(self) -> None:
        self.reason = TerminationReason.REPEATED_CALL_LIMIT
        self.events["repeated_call_terminations"] += 1
        error = f"this call was made more than {self._most} times; the episode is over"
        self.results.append(StepResult(ok=False, state_id="", error=error))

    def _finish(self, call: ToolCall) -> bool:
        """Take the result of the running call, if it is there."""
        attempt = self._world.poll()
        if attempt is None:
            return False
        self._running = False
        limits = attempt.limits
        if isinstance(attempt.error, WorldTimeoutError):
            self.events["tool_execution_errors"] += 1
            self.results.append(timed_out(call.name, limits))
            if limits.touches_state:
                self._break(attempt.error)
            return True
        try:
            result = bounded(attempt.result(), limits)
        except (Exception, SystemExit) as error:
            self.events["tool_execution_errors"] += 1
            self.results.append(failed(f"the tool broke: {say(error)}", TOOL_ERROR))
            self._break(error)
            return True
        self.results.append(result)
        self.events += count(result)
        return True

    def _break(self, error: BaseException) -> None:
        self.defect = error
        self.reason = TerminationReason.ENVIRONMENT_ERROR


def unread_turn(turn_id: int, error: str) -> Turn:
    """Return the record of a turn that could not be read."""
    call = ToolCallRecord(call_id=f"c{turn_id}", name=UNPARSED, valid=False, parse_error=error)
    return Turn(turn_id=turn_id, tool_calls=[call])


def verification_of(verdict: VerificationResult) -> VerificationRecord:
    """Return the record of a verdict.

    Raises:
        ValueError: It contradicts itself, or a field has the wrong type.
    """
    if bool(verdict.solved) != (verdict.failure_category == FailureCategory.SOLVED):
        raise ValueError(f"a verdict is solved={verdict.solved} and {verdict.failure_category}")
    return VerificationRecord(
        solved=verdict.solved,
        reward=verdict.reward,
        predicted=_text(verdict.predicted),
        expected=_text(verdict.expected),
        failure_category=verdict.failure_category,
        detail=_text(verdict.detail),
    )


def _text(value: str | None) -> str | None:
    return None if value is None else storable(value)


def call_ids(turn_id: int, number: int, max_calls: int) -> list[str]:
    """Return the names of a turn's calls: ``c3``, or ``c3.0`` and so on where several may be."""
    if max_calls == 1:
        return [f"c{turn_id}"] * number
    return [f"c{turn_id}.{place}" for place in range(number)]


def count(result: StepResult) -> Counter[str]:
    """Return the events of one executed call."""
    if result.ok:
        return Counter(tool_execution_successes=1)
    unknown = result.failure_category is FailureCategory.UNKNOWN_TOOL
    return Counter(tool_execution_errors=1, invalid_tool_calls=1, unknown_tool_calls=int(unknown))


def say(error: BaseException) -> str:
    """Return what an environment's error says, in one line."""
    return error.message if isinstance(error, OpdError) else f"{type(error).__name__}: {error}"


def _record(call_id: str, result: StepResult) -> ToolResultRecord:
    return ToolResultRecord(
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


def _block(call_id: str | None, result: StepResult) -> str:
    return render_tool_result(
        result.ok,
        result.result,
        result.error,
        code=result.error_code,
        retryable=result.retryable,
        intervention=result.intervention,
        metadata=result.metadata,
        call_id=call_id,
    )
