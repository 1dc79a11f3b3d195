"""How messages are framed as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from core.errors import TrajectoryError
from core.trajectory.spans import SpanType

EXCERPT = 48
"""Characters that an error shows of each of two texts."""


class ReadTurn(Protocol):
    """What must be known of a parsed turn (``core.environments.protocol``)."""

    @property
    def kind(self) -> str:
        """``tool_call``, ``final`` or ``parse_error``."""
        ...

    @property
    def blocks(self) -> Sequence[tuple[int, str | None]]:
        """Character at which each typed block starts, and the tool that it calls."""
        ...

    @property
    def calls(self) -> Sequence["ReadCall"]:
        """The calls of the turn."""
        ...


class ReadCall(Protocol):
    """What must be known of one call of a parsed turn."""

    @property
    def name(self) -> str:
        """Name of the tool."""
        ...

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it is called with."""
        ...


class Piece(NamedTuple):
    """A context segment before it is encoded."""

    span_type: SpanType
    key: str
    text: str


class Written(NamedTuple):
    """A turn of the model: its text, and the text of the end-of-turn token that it sampled."""

    text: str
    end: str
    read: ReadTurn


@dataclass(frozen=True)
class Rewritten:
    """The conversation so far as a template wants it now: other text than the model has seen."""

    pieces: list[Piece]


class Conversation(Protocol):
    """One episode in the frames of a template."""

    def open(self, system_text: str, user_text: str, privileged: str | None = None) -> list[Piece]:
        """Return the segments up to where the assistant's first turn starts."""
        ...

    def answer(self, turn: Written, results: Sequence[str]) -> str | Rewritten:
        """Return what follows a turn: the rest of its frame, results, the next turn's opening.

        Where the template cannot go on from what the model has seen, the whole conversation is
        returned in the template's words.
        """
        ...


class Template(Protocol):
    """Frames conversations."""

    @property
    def lists_tools(self) -> bool:
        """Whether it shows the tools itself, so that no system prompt need to."""
        ...

    def conversation(self) -> Conversation:
        """Start a conversation."""
        ...


@dataclass(frozen=True)
class TurnTemplate:
    """How messages are framed.

    Attributes:
        opening: Text before a message's role.
        after_role: Text between role and content.
        close: Text after a message's content.
    """

    opening: str = "<|im_start|>"
    after_role: str = "\n"
    close: str = "<|im_end|>\n"
    lists_tools: bool = field(default=False, init=False)

    def header(self, role: str) -> str:
        """Return what opens a message of ``role``."""
        return f"{self.opening}{role}{self.after_role}"

    def message(self, role: str, content: str) -> str:
        """Return a whole message.

        Raises:
            TrajectoryError: The content holds a control text of this template and could so pose as
                another message.
        """
        refuse_control_texts(role, content, (self.opening.strip(), self.close.strip()))
        return f"{self.header(role)}{content}{self.close}"

    def conversation(self) -> "TurnConversation":
        """Start a conversation."""
        return TurnConversation(self)


class TurnConversation:
    """A conversation in equal frames, which never change what was said."""

    def __init__(self, template: TurnTemplate) -> None:
        self._template = template

    def open(self, system_text: str, user_text: str, privileged: str | None = None) -> list[Piece]:
        """Return the segments up to where the assistant's first turn starts."""
        frame = self._template
        pieces = [Piece(SpanType.SYSTEM, "sys", frame.message("system", system_text))]
        if privileged is not None:
            hint = frame.message("system", privileged)
            pieces.append(Piece(SpanType.SYSTEM, "privileged", hint))
        user = frame.message("user", user_text) + frame.header("assistant")
        return [*pieces, Piece(SpanType.USER, "user", user)]

    def answer(self, turn: Written, results: Sequence[str]) -> str:
        """Return the rest of the turn's frame, one user message with the results, and a header."""
        frame = self._template
        body = frame.message("user", "\n".join(results)) + frame.header("assistant")
        # A token that the model wrote stays the model's; another end token closes no frame.
        return (frame.close.removeprefix(turn.end) if turn.end else frame.close) + body


def refuse_control_texts(role: str, content: str, controls: Sequence[str]) -> None:
    """Refuse a message that could pose as another one.

    Raises:
        TrajectoryError: The content holds one of the control texts.
    """
    for control in filter(None, controls):
        if control in content:
            raise TrajectoryError(
                f"a {role} message contains the control text {control}",
                "Remove or escape it; only the template may frame messages.",
            )


def shared_start(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """Return the length of the longest common prefix."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))


def first_difference(ours: str, theirs: str) -> str:
    """Say at which byte two texts part, and show both from a little before it."""
    at = shared_start(ours, theirs)
    start = max(0, at - EXCERPT // 2)
    shown = [repr(text[start : start + EXCERPT]) for text in (ours, theirs)]
    return f"at byte {len(ours[:at].encode())}, {shown[0]} became {shown[1]}"


CHATML = TurnTemplate()
"""The frames of Qwen and SmolLM2, and of the toy pair."""
