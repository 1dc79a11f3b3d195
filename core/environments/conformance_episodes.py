"""Checks on an environment while it is played, by its oracle and by hostile scripts."""

from collections.abc import Iterator
from time import thread_time
from typing import Any

from jsonschema import Draft202012Validator

from core.environments.base import (
    Environment,
    FailureCategory,
    Observation,
    OracleFinal,
    StepResult,
    Task,
    ToolCall,
    ToolLimits,
    VerificationResult,
)
from core.environments.conformance_subject import Subject
from core.environments.hostile import ANSWERS, malformed_calls, unknown_calls
from core.environments.protocol import render_final, render_tool_call, render_tool_result
from core.environments.scripted import play_oracle

MAX_ACTIONS = 16
"""Longest oracle solution; an episode is given few turns more than its oracle needs."""
MAX_RESULT_CHARACTERS = 100_000
MAX_VERIFIER_S = 5.0
"""CPU seconds for all hostile answers to one task."""


def oracle(subject: Subject) -> Iterator[str]:
    """The oracle ends in one answer, within limits, calls tools as specified, and is right."""
    for key, task in subject.tasks.items():
        environment = subject.make()
        actions = environment.oracle_actions(task)
        finals = [action for action in actions if isinstance(action, OracleFinal)]
        if len(finals) != 1 or actions[-1] is not finals[0]:
            yield f"the oracle of {key} must end in one OracleFinal and have no other"
            continue
        if len(actions) > MAX_ACTIONS:
            yield f"the oracle of {key} takes {len(actions)} actions, more than {MAX_ACTIONS}"
        calls = [action for action in actions if isinstance(action, ToolCall)]
        yield from (f"oracle of {key}: {reason}" for reason in _misfits(environment, calls))
        render_final(finals[0].answer)
        verdict = play_oracle(environment, task).verdict
        if verdict is None or not verdict.solved:
            category = None if verdict is None else verdict.failure_category.value
            yield f"the oracle of {key} answers {finals[0].answer!r} and is judged {category}"


def _misfits(environment: Environment, calls: list[ToolCall]) -> Iterator[str]:
    schemas = {spec["name"]: spec["parameters"] for spec in environment.tool_specs()}
    for call in calls:
        render_tool_call(call.name, call.arguments)
        if call.name not in schemas:
            yield f"{call.name!r} is none of the tool specs"
            continue
        for error in Draft202012Validator(schemas[call.name]).iter_errors(dict(call.arguments)):
            yield f"its call of {call.name} does not fit the schema: {error.message}"


def verifier(subject: Subject) -> Iterator[str]:
    """Every string gets a verdict, soon, the same each time; wrong answers are not accepted."""
    for key, task in subject.few.items():
        environment = subject.make()
        environment.reset(task)
        started = thread_time()
        accepted = 0
        for answer in ANSWERS:
            shown = f"{key}: the answer {answer[:40]!a}"
            try:
                verdict, again = environment.verify(answer), environment.verify(answer)
            except Exception as error:  # which answer it was is what helps
                yield f"{shown} raises {type(error).__name__}: {error}"
                continue
            yield from (f"{shown} {reason}" for reason in _verdict_problems(answer, verdict, again))
            accepted += bool(getattr(verdict, "solved", False))
        if accepted > 1:
            yield f"{key}: {accepted} different hostile answers are accepted"
        taken = thread_time() - started
        if taken > MAX_VERIFIER_S:
            yield f"{key}: the verdicts on hostile answers take {taken:.1f} s of CPU time"


def _verdict_problems(answer: str, verdict: object, again: object) -> Iterator[str]:
    if not isinstance(verdict, VerificationResult):
        yield f"gets a {type(verdict).__name__}, not a VerificationResult"
        return
    if verdict != again:
        yield "gets another verdict when it is judged again"
    if verdict.solved and not answer.strip():
        yield "is blank and accepted"
    if verdict.solved != (verdict.failure_category is FailureCategory.SOLVED):
        yield f"is solved={verdict.solved} and {verdict.failure_category}"


def reset(subject: Subject) -> Iterator[str]:
    """``reset`` gives the same observation whenever a task begins, in whatever instance."""
    used = subject.make()
    for key, task in subject.tasks.items():
        first = subject.make().reset(task)
        if not isinstance(first, Observation) or not isinstance(first.text, str):
            yield f"reset of {key} must return an Observation with a text"
            continue
        if not isinstance(first.state_id, str) or not first.state_id:
            yield f"reset of {key} gives no state id"
        if used.reset(task) != first or used.reset(task) != first:
            yield f"reset of {key} gives another observation in an instance that was used"
        play_oracle(used, task)
        if used.reset(task) != first:
            yield f"reset of {key} gives another observation after an episode"


def isolation(subject: Subject) -> Iterator[str]:
    """An episode does not depend on those before it, nor on those that run beside it."""
    tasks = list(subject.few.items())
    alone = {key: _solo(subject, task) for key, task in tasks}
    used = subject.make()
    for key, task in tasks:
        _disturb(used, task)
        if play_oracle(used, task).document() != alone[key]:
            yield f"{key} is another episode in an instance that played before"
    for (key, task), (_, other) in zip(tasks, [*tasks[1:], *tasks[:1]], strict=True):
        if _interleaved(subject, task, other) != alone[key]:
            yield f"{key} is another episode while a second instance plays; state is shared"


def _solo(subject: Subject, task: Task) -> dict[str, Any]:
    return play_oracle(subject.make(), task).document()


def _disturb(environment: Environment, task: Task) -> None:
    """Play the oracle, then make a few refused calls, and stop in the middle."""
    play_oracle(environment, task)
    for call in [*unknown_calls()][:2]:
        environment.step(call)
    for call in [*malformed_calls(environment.tool_specs())][:8]:
        environment.step(call)


def _interleaved(subject: Subject, task: Task, other: Task) -> dict[str, Any]:
    """Return the oracle's episode of ``task`` with another instance's steps between its own."""
    environment = _Interrupted(subject.make(), subject.make(), other)
    return play_oracle(environment, task).document()  # pyright: ignore[reportArgumentType]


class _Interrupted:
    """Plays a second environment before every use of the first."""

    def __init__(self, environment: Environment, second: Environment, other: Task) -> None:
        self._environment, self._second, self._other = environment, second, other

    def __getattr__(self, name: str) -> Any:
        _disturb(self._second, self._other)
        return getattr(self._environment, name)


def refusals(subject: Subject) -> Iterator[str]:
    """Unknown tools and odd arguments are answered, never raised, and never flood."""
    task = next(iter(subject.tasks.values()))
    environment = subject.make()
    environment.reset(task)
    unknown = [*unknown_calls()]
    for call in [*unknown, *malformed_calls(environment.tool_specs())]:
        shown = f"{call.name[:20]!a} called with {ascii(dict(call.arguments))[:80]}"
        try:
            limits = environment.tool_limits(call.name)
            result = environment.step(call)
        except Exception as error:  # which call it was is what helps
            yield f"{shown} raises {type(error).__name__}: {error}"
            continue
        reasons = [*_result_problems(result)]
        if not isinstance(limits, ToolLimits):
            reasons.append(f"tool_limits returns a {type(limits).__name__}, not ToolLimits")
        if not reasons and call in unknown and result.failure_category is not _UNKNOWN:
            reasons = ["must be refused with failure category unknown_tool"]
        yield from (f"{shown}: {each}" for each in reasons)


_UNKNOWN = FailureCategory.UNKNOWN_TOOL


def _result_problems(result: object) -> Iterator[str]:
    if not isinstance(result, StepResult):
        yield f"the result is a {type(result).__name__}, not a StepResult"
        return
    if not isinstance(result.state_id, str) or not result.state_id:
        yield "the result has no state id"
    if not isinstance(result.result, str) or len(result.result) > MAX_RESULT_CHARACTERS:
        yield f"the result is no text of at most {MAX_RESULT_CHARACTERS} characters"
    if not result.ok and not (isinstance(result.error, str) and result.error.strip()):
        yield "a refusal must say why in 'error'"
    render_tool_result(result.ok, result.result, result.error, metadata=result.metadata)


def state_ids(subject: Subject) -> Iterator[str]:
    """State ids follow from the calls alone: looking changes nothing, and repeating repeats."""
    for key, task in subject.few.items():
        plain = _ids(subject.make(), task, look=False)
        if _ids(subject.make(), task, look=False) != plain:
            yield f"{key}: the same calls lead to other state ids"
        elif _ids(subject.make(), task, look=True) != plain:
            yield f"{key}: reading prompts, hints or verdicts changes the state id"


def _ids(environment: Environment, task: Task, *, look: bool) -> list[str]:
    actions = environment.oracle_actions(task)
    found = [environment.reset(task).state_id]
    for call in (action for action in actions if isinstance(action, ToolCall)):
        if look:
            environment.verify("a")
            environment.system_prompt()
            environment.privileged_context(task)
            environment.oracle_actions(task)
        found.append(environment.step(call).state_id)
    return found
