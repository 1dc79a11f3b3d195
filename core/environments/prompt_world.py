"""The world of single-turn prompts: no tools, one response, and its answer judged as free text.

Its tasks are rows of files (``core.prompts``), so it generates none; ``source.kind`` chooses it.
"""

from collections.abc import Mapping
from typing import Any, get_args

from core.environments.answer_checks import (
    AnswerCheck,
    answer_start,
    extract_answer,
    judge_answer,
)
from core.environments.base import (
    Difficulty,
    Environment,
    FailureCategory,
    Observation,
    OracleAction,
    OracleFinal,
    Split,
    StepResult,
    Task,
    ToolCall,
    VerificationResult,
)
from core.environments.protocol import ParsedTurn
from core.environments.registry import register
from core.errors import InputError, ToolEnvironmentError

STATE_ID = "prompt:0"

UNRATED = "unrated"
"""Difficulty of a prompt from a file."""

SYSTEM, DEMONSTRATION, HINT = "system", "demonstration", "hint"
"""Keys of a task's metadata: its system message, a response to learn from, what a teacher may read.
"""


@register
class PromptWorld(Environment):
    """Every response is a final answer.

    Args:
        answer_check: When an answer is the expected one.
        answer_marker: Text before the answer in a response; None: the response is the answer.

    Raises:
        InputError: A parameter has none of its values.
    """

    name = "prompts"

    def __init__(
        self, answer_check: AnswerCheck = "exact", answer_marker: str | None = None
    ) -> None:
        super().__init__()
        if answer_check not in get_args(AnswerCheck):
            choices = ", ".join(get_args(AnswerCheck))
            raise InputError(f"answer_check is {answer_check!r}", f"Choose one of {choices}.")
        self.answer_check: AnswerCheck = answer_check
        self.answer_marker = answer_marker
        self._task: Task | None = None

    @property
    def stops(self) -> Mapping[str, int]:
        """Return none: a response ends where the model ends it, or its budget does."""
        return {}

    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
        """Refuse: prompts are read, not generated.

        Raises:
            InputError: Always.
        """
        raise InputError(
            f"prompts are rows of files; there is no task {index} to generate",
            "Name the files in source.train_files, with source.kind: verl_parquet.",
        )

    def tool_specs(self) -> list[dict[str, Any]]:
        """Return no tool."""
        return []

    def system_prompt(self) -> str:
        """Return the system message of the running episode's prompt; empty where it has none."""
        return "" if self._task is None else self._task.metadata.get(SYSTEM, "")

    def reset(self, task: Task) -> Observation:
        """Start an episode: the prompt is all there is to see."""
        self._task = task
        return Observation(task.prompt, STATE_ID)

    def step(self, call: ToolCall) -> StepResult:
        """Refuse every call."""
        error = f"there is no tool {call.name[:40]!r}; answer in words"
        category = FailureCategory.UNKNOWN_TOOL
        return StepResult(ok=False, state_id=STATE_ID, error=error, failure_category=category)

    def read_turn(self, text: str) -> ParsedTurn:
        """Return the whole response as a final answer; its block starts at the marker, if any."""
        marker = self.answer_marker
        start = answer_start(text, marker)
        block = 0 if start is None or marker is None else start - len(marker)
        return ParsedTurn("final", text[:block], block, len(text), final_answer=text)

    def write_answer(self, answer: str) -> str:
        """Return the response as it is."""
        return answer

    def verify(self, answer: str) -> VerificationResult:
        """Judge a response by the answer in it.

        Raises:
            ToolEnvironmentError: No episode was started.
        """
        if self._task is None:
            raise ToolEnvironmentError("no episode was started", "Call reset first.")
        expected = self._task.answer
        found = extract_answer(answer, self.answer_marker)
        if not expected:
            category = FailureCategory.NO_REFERENCE
        elif found is None:
            category = FailureCategory.MALFORMED_ANSWER
        else:
            category = judge_answer(found, expected, self.answer_check)
        solved = category is FailureCategory.SOLVED
        return VerificationResult(solved, float(solved), expected, found or "", category)

    def oracle_actions(self, task: Task) -> list[OracleAction]:
        """Return the row's demonstration.

        Raises:
            InputError: The row has none.
        """
        if DEMONSTRATION not in task.metadata:
            raise InputError(
                f"{task.task_id} has no demonstration to learn from",
                "Name the column that holds one in source.demonstration_key.",
            )
        return [OracleFinal(task.metadata[DEMONSTRATION])]

    def privileged_context(self, task: Task) -> str | None:
        """Return the row's hint, or None."""
        return task.metadata.get(HINT)

    def trajectory_metadata(self, task: Task) -> dict[str, Any]:
        """Return where the row is, without what only teachers read."""
        hidden = {SYSTEM, DEMONSTRATION, HINT}
        return {key: value for key, value in task.metadata.items() if key not in hidden}
