"""The contract of a world with tools, and prompt-disjoint splits of its tasks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, get_args

from core.environments.prompts import render_protocol_prompt, render_system_prompt
from core.environments.protocol import (
    LENIENT,
    MOST_CALLS,
    Grammar,
    ParsedTurn,
    parse_turn,
    render_final,
)
from core.errors import InputError

Difficulty = Literal["easy", "medium", "hard"]
Split = Literal["train", "eval", "test"]

SPLIT_OFFSETS: dict[Split, int] = {"train": 0, "eval": 1_000_000, "test": 2_000_000}
"""First task index of each split, in the order in which splits are made."""

PromptStyle = Literal["full", "compact"]
ProtocolVersion = Literal["v1", "v2", "v3"]
VerifierVersion = Literal["v1", "v2"]


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
    NO_REFERENCE = "no_reference"


@dataclass(frozen=True)
class Task:
    """One problem: ``prompt`` is what the student reads, ``answer`` what the verifier expects."""

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
class ToolLimits:
    """What one call of a tool may cost.

    Attributes:
        seconds: Time that a slow world has for the call; nothing interrupts a world that is not
            declared slow.
        characters: Length of its result and of its error; what exceeds it is cut.
        touches_state: Whether a call that is still running may change the world. If so, a call
            that runs out of time ends its episode, because nobody knows the world's state.
    """

    seconds: float = 30.0
    characters: int = 16_384
    touches_state: bool = True


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
        protocol_version: Version of the turn grammar and of the prompt's examples; ``v1`` and
            ``v2`` share the lenient grammar, ``v3`` is strict.
        verifier_version: Version of the verifier; that of the protocol by default, ``v2`` for
            ``v3``.
        max_calls_per_turn: Tool calls that one turn may hold; more than 1 needs ``v3``.

    Raises:
        InputError: A parameter has none of its values.
    """

    name: ClassVar[str]
    judges_policy: ClassVar[bool] = False
    """Whether its trajectories carry ``policy_gate_qualified``, which a verifier-gated selector
    reads."""
    slow: ClassVar[bool] = False
    """Whether its methods may take long or hang. They then run in a thread of their own, within
    ``tool_limits``, while other episodes go on."""
    grammar: Grammar = LENIENT
    """What a turn may be."""

    def __init__(
        self,
        prompt_style: PromptStyle = "full",
        protocol_version: ProtocolVersion = "v1",
        verifier_version: VerifierVersion | None = None,
        max_calls_per_turn: int = 1,
    ) -> None:
        _check_choice("prompt_style", prompt_style, get_args(PromptStyle))
        _check_choice("protocol_version", protocol_version, get_args(ProtocolVersion))
        own = "v1" if protocol_version == "v1" else "v2"
        self.prompt_style: PromptStyle = prompt_style
        self.protocol_version: ProtocolVersion = protocol_version
        self.verifier_version: VerifierVersion = verifier_version or own
        _check_choice("verifier_version", self.verifier_version, get_args(VerifierVersion))
        _check_calls(max_calls_per_turn, protocol_version)
        self.grammar = Grammar(strict=protocol_version == "v3", max_calls=max_calls_per_turn)

    @property
    def stops(self) -> Mapping[str, int]:
        """Texts that end a turn, and how often each must be complete to do so.

        Where there are none, a turn ends by its end-of-turn token or its budget.
        """
        return self.grammar.stops

    @abstractmethod
    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
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

    def tool_limits(self, tool: str) -> ToolLimits:
        """Return what one call of ``tool`` may cost; ``reset`` and ``verify`` are asked for too."""
        del tool
        return ToolLimits()

    def privileged_context(self, task: Task) -> str | None:
        """Return what only a teacher may read, or None if this world has no such thing."""
        del task
        return None

    def system_prompt(self) -> str:
        """Return what the student reads first: the tools and the turn grammar."""
        return render_system_prompt(self)

    def read_turn(self, text: str) -> ParsedTurn:
        """Return what a generated turn says; total on every string."""
        return parse_turn(text, self.grammar)

    def write_answer(self, answer: str) -> str:
        """Return the turn that gives a final answer, as the oracle writes it."""
        return render_final(answer)

    def protocol_prompt(self) -> str:
        """Return the turn grammar alone, where a chat template shows the tools."""
        return render_protocol_prompt(self)

    def final_answer_example(self) -> str:
        """Return an answer in the right format, for the system prompt."""
        return "42"

    def trajectory_metadata(self, task: Task) -> dict[str, Any]:
        """Return what a trajectory of ``task`` should carry."""
        return dict(task.metadata)


def make_splits(
    environment: Environment, counts: Mapping[str, int], seed: int, difficulty: Difficulty
) -> dict[str, list[Task]]:
    """Return the tasks of each split; no prompt occurs twice, in one split or across splits.

    Splits are made in the order train, eval, test, from indices 0, 1 000 000 and 2 000 000 up. An
    index whose prompt was seen before is passed over.

    Args:
        environment: Generates the tasks.
        counts: Number of tasks per split; a split that is not named is empty.
        seed: Seed of the task generator.
        difficulty: Difficulty of every task.

    Raises:
        InputError: A split is unknown, or the environment has too few distinct prompts.
    """
    for split in counts:
        _check_choice("split", split, tuple(SPLIT_OFFSETS))
    seen: set[str] = set()
    return {
        split: _fresh_tasks(environment, split, counts.get(split, 0), seed, difficulty, seen)
        for split in SPLIT_OFFSETS
    }


def _fresh_tasks(
    environment: Environment,
    split: Split,
    wanted: int,
    seed: int,
    difficulty: Difficulty,
    seen: set[str],
) -> list[Task]:
    tasks: list[Task] = []
    first = SPLIT_OFFSETS[split]
    for index in range(first, first + max(200 * wanted, 2000)):
        if len(tasks) == wanted:
            break
        task = environment.generate_task(index, seed=seed, difficulty=difficulty, split=split)
        if task.prompt not in seen:
            seen.add(task.prompt)
            tasks.append(task)
    if len(tasks) < wanted:
        raise InputError(
            f"{environment.name} has only {len(tasks)} fresh {difficulty} prompts for the {split} "
            f"split, not {wanted}",
            "Ask for fewer tasks or a harder difficulty.",
        )
    return tasks


def _check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{key} is {value!r}", f"Choose one of {', '.join(choices)}.")


def _check_calls(max_calls: object, protocol_version: ProtocolVersion) -> None:
    if type(max_calls) is not int or not 1 <= max_calls <= MOST_CALLS:
        raise InputError(f"max_calls_per_turn is {max_calls!r}", f"Give 1 to {MOST_CALLS}.")
    if max_calls > 1 and protocol_version != "v3":
        raise InputError(
            f"max_calls_per_turn is {max_calls} in protocol_version {protocol_version!r}",
            "Several calls per turn need protocol_version v3.",
        )
