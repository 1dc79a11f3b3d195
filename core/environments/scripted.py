"""Episodes without a model: scripted actions, and what the world says to them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.environments.base import (
    Environment,
    Observation,
    OracleFinal,
    StepResult,
    Task,
    ToolCall,
    VerificationResult,
)
from core.environments.protocol import render_final, render_tool_call, render_tool_result


@dataclass(frozen=True)
class ScriptedEpisode:
    """What happened."""

    task: Task
    opening: Observation
    calls: tuple[tuple[ToolCall, StepResult], ...]
    answer: str | None
    verdict: VerificationResult | None
    """None where the script ends without an answer."""

    def document(self) -> dict[str, Any]:
        """Return the episode as JSON values."""
        return json.loads(json.dumps(asdict(self), allow_nan=False))


def play_oracle(environment: Environment, task: Task) -> ScriptedEpisode:
    """Play the environment's own solution of a task."""
    actions = environment.oracle_actions(task)
    calls = [action for action in actions if isinstance(action, ToolCall)]
    finals = [action.answer for action in actions if isinstance(action, OracleFinal)]
    return play(environment, task, calls, finals[-1] if finals else None)


def play(
    environment: Environment, task: Task, calls: Sequence[ToolCall], answer: str | None
) -> ScriptedEpisode:
    """Reset, make calls, and give an answer.

    Args:
        environment: The world; it is left at the end of the episode.
        task: What to solve.
        calls: Tool calls in order.
        answer: Final answer; None gives none.
    """
    opening = environment.reset(task)
    made = tuple((call, environment.step(call)) for call in calls)
    verdict = None if answer is None else environment.verify(answer)
    return ScriptedEpisode(task, opening, made, answer, verdict)


def paragraphs(environment: Environment, episode: ScriptedEpisode) -> Iterator[tuple[str, str]]:
    """Yield each span's type and its text, as a student would read and write them."""
    yield "system", environment.system_prompt()
    yield "user", episode.opening.text
    for call, result in episode.calls:
        yield "assistant_tool_call", render_tool_call(call.name, call.arguments)
        yield (
            "tool_result",
            render_tool_result(
                result.ok,
                result.result,
                result.error,
                code=result.error_code,
                retryable=result.retryable,
                intervention=result.intervention,
                metadata=result.metadata,
            ),
        )
    if episode.answer is not None:
        yield "assistant_final", render_final(episode.answer)
