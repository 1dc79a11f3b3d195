"""A world whose tools map arguments to text: what all of them share around the tools."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from core.environments.base import (
    Environment,
    FailureCategory,
    Observation,
    StepResult,
    Task,
    ToolCall,
    VerificationResult,
)
from core.errors import InvalidToolCallError, ToolEnvironmentError

UNKNOWN_ARGUMENT = "UNKNOWN_ARGUMENT"
"""Error code of an argument that a tool's spec does not name."""

Tool = Callable[[Mapping[str, Any]], str]
"""Arguments to result; refuses with ``ToolEnvironmentError``."""


class CodedRefusalError(ToolEnvironmentError):
    """A refusal that a program can tell from others.

    Args:
        message: What is wrong.
        hint: What to do about it.
        code: Its name, e.g. ``SQL_EXECUTION_ERROR``.
        category: Kind of failure; None where the call itself was right.
        retryable: Whether a later call may succeed.
        intervention: Whether the experiment, not the call, caused it.
        metadata: More facts.
    """

    def __init__(
        self,
        message: str,
        hint: str,
        code: str,
        *,
        category: FailureCategory | None = FailureCategory.TOOL_ERROR,
        retryable: bool = False,
        intervention: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.category = category
        self.facts: dict[str, Any] = {
            "error_code": code,
            "retryable": retryable,
            "intervention": intervention,
            "metadata": dict(metadata or {}),
        }


class ToolWorld(Environment):
    """An environment that counts its steps and turns refusals of its tools into results.

    A world defines ``tools``; one whose answers are more than a text overrides ``judge``, and one
    whose episodes hold more than the task overrides ``begin``.
    """

    state_prefix: ClassVar[str] = ""
    """Starts the names of states; the world's own name where it is empty."""
    unknown_tool_code: ClassVar[str | None] = None
    """Error code of a call to no tool, in worlds whose errors have codes."""

    _task: Task | None = None
    _steps = 0

    @property
    def task(self) -> Task:
        """The task of the running episode.

        Raises:
            ToolEnvironmentError: No episode was started.
        """
        if self._task is None:
            raise ToolEnvironmentError("no episode was started", "Call reset first.")
        return self._task

    @property
    def state_id(self) -> str:
        """Name of the current state: how many calls were made."""
        return f"{self.state_prefix or self.name}:{self._steps}"

    @abstractmethod
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by name."""

    def judge(self, task: Task, answer: str) -> tuple[FailureCategory, str]:
        """Return the verdict on an answer and the answer as it was read; total on every string.

        Unless a world says otherwise, the right answer is the task's, white space around it aside.
        """
        read = answer.strip()
        solved = read == task.answer.strip()
        return FailureCategory.SOLVED if solved else FailureCategory.WRONG_ANSWER, read

    def begin(self, task: Task) -> None:
        """Prepare an episode of ``task``."""
        del task

    def reset(self, task: Task) -> Observation:
        """Start an episode of ``task``."""
        self._task, self._steps = task, 0
        self.begin(task)
        return Observation(task.prompt, self.state_id)

    def step(self, call: ToolCall) -> StepResult:
        """Run one call; every call is counted.

        Under protocol version v3 an argument that the tool's spec does not name is refused.
        """
        self._steps += 1
        tool = self.tools().get(call.name)
        if tool is None:
            error = f"there is no tool {call.name[:40]!r}; the tools are {', '.join(self.tools())}"
            code = self.unknown_tool_code
            return self.refusal(FailureCategory.UNKNOWN_TOOL, error, error_code=code)
        if self.grammar.strict and (unknown := self._unknown_argument(call)) is not None:
            error = f"{call.name} has no argument {unknown[:40]!r}"
            category = FailureCategory.INVALID_TOOL_CALL
            return self.refusal(category, error, error_code=UNKNOWN_ARGUMENT)
        try:
            return StepResult(ok=True, state_id=self.state_id, result=tool(call.arguments))
        except CodedRefusalError as error:
            return self.refusal(error.category, describe(error), **error.facts)
        except InvalidToolCallError as error:
            return self.refusal(FailureCategory.INVALID_TOOL_CALL, describe(error))
        except ToolEnvironmentError as error:
            return self.refusal(FailureCategory.TOOL_ERROR, describe(error))

    def _unknown_argument(self, call: ToolCall) -> str | None:
        for spec in self.tool_specs():
            if spec["name"] == call.name:
                known = spec["parameters"].get("properties", {})
                return next((name for name in call.arguments if name not in known), None)
        return None

    def refusal(self, category: FailureCategory | None, error: str, **facts: Any) -> StepResult:
        """Return the result of a call that was refused."""
        return StepResult(
            ok=False, state_id=self.state_id, error=error, failure_category=category, **facts
        )

    def verify(self, answer: str) -> VerificationResult:
        """Judge a final answer.

        Raises:
            ToolEnvironmentError: No episode was started.
        """
        category, predicted = self.judge(self.task, answer)
        solved = category is FailureCategory.SOLVED
        expected = self.task.answer
        return VerificationResult(solved, float(solved), expected, predicted, category)


def describe(error: ToolEnvironmentError) -> str:
    """Return a refusal as one line that a model reads."""
    return f"{error.message}. {error.hint}"


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """Return a string argument.

    Raises:
        InvalidToolCallError: It is absent or no string.
    """
    value = arguments.get(name)
    if not isinstance(value, str):
        raise InvalidToolCallError(f"{name!r} must be a string", "Write it in quotes.")
    return value
