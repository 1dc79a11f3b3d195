"""The contract of a world with tools, and prompt-disjoint splits of its tasks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

Difficulty = Literal["easy", "medium", "hard"]
Split = Literal["train", "eval", "test"]

SPLIT_OFFSETS: dict[str, int] = {"train": 0, "eval": 1_000_000, "test": 2_000_000}
"""First task index of each split."""


class FailureCategory(StrEnum):
    """What went wrong with a step or an answer; ``solved`` where nothing did."""

    SOLVED = "solved"
    WRONG_ANSWER = "wrong_answer"
    NO_FINAL_ANSWER = "no_final_answer"
    MALFORMED_ANSWER = "malformed_answer"
    INVALID_TOOL_CALL = "invalid_tool_call"
    UNKNOWN_TOOL = "unknown_tool"
    TOOL_ERROR = "tool_error"
    BUDGET_EXHAUSTED = "budget_exhausted"


@dataclass(frozen=True)
class Task:
    """One problem. ``prompt`` is what the student reads; ``answer`` is what the verifier expects."""

    task_id: str
    prompt: str
    answer: str
    difficulty: str
    split: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What an episode sees first."""

    text: str
    state_id: str


@dataclass(frozen=True)
class ToolCall:
    """A parsed request of the student."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class StepResult:
    """A tool's answer; a refused call is an answer too."""

    ok: bool
    state_id: str
    result: str = ""
    error: str | None = None
    failure_category: FailureCategory | None = None
    error_code: str | None = None
    retryable: bool = False
    intervention: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VerificationResult:
    """Verdict on a final answer."""

    solved: bool
    reward: float
    expected: str
    predicted: str
    failure_category: FailureCategory
    detail: str | None = None


@dataclass(frozen=True)
class OracleFinal:
    """The oracle's last action: the final answer."""

    answer: str


OracleAction = ToolCall | OracleFinal


class Environment(ABC):
    """One world. An instance runs one episode at a time: ``reset``, then ``step`` until the end.

    Args:
        prompt_style: ``full`` explains tools and protocol at length, ``compact`` in few tokens.
        protocol_version: Version of the prompt's examples and, by default, of the verifier.
        verifier_version: Overrides the version of the verifier alone.
    """

    name: ClassVar[str]

    def __init__(
        self,
        prompt_style: Literal["full", "compact"] = "full",
        protocol_version: Literal["v1", "v2"] = "v1",
        verifier_version: Literal["v1", "v2"] | None = None,
    ) -> None:
        self.prompt_style = prompt_style
        self.protocol_version = protocol_version
        self.verifier_version = verifier_version or protocol_version

    @abstractmethod
    def generate_task(
        self, index: int, *, seed: int, difficulty: Difficulty, split: Split
    ) -> Task:
        """Return task ``index``: a pure function of its arguments."""

    @abstractmethod
    def tool_specs(self) -> list[dict[str, Any]]:
        """Return name, description and JSON-schema parameters of each tool."""

    @abstractmethod
    def reset(self, task: Task) -> Observation:
        """Start an episode. The observation's text is what the student reads as the user turn."""

    @abstractmethod
    def step(self, call: ToolCall) -> StepResult:
        """Run one tool call; never raises on what a model can write."""

    @abstractmethod
    def verify(self, answer: str) -> VerificationResult:
        """Judge a final answer; total on every string."""

    @abstractmethod
    def oracle_actions(self, task: Task) -> list[OracleAction]:
        """Return the actions that solve ``task``, ending in an ``OracleFinal``."""

    def privileged_context(self, task: Task) -> str | None:
        """Return what only a teacher may read, or None if this world has no such thing."""
        del task
        return None

    def final_answer_example(self) -> str:
        """Return an answer in the right format, for the system prompt."""
        return "42"

    def trajectory_metadata(self, task: Task) -> dict[str, Any]:
        """Return what a trajectory of ``task`` should carry."""
        return dict(task.metadata)
