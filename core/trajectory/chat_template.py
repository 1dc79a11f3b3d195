"""A tokenizer's own chat template, rendered piece by piece and held against the whole render.

A chat template is a program from messages to text. It may write a turn otherwise once another one
follows it: drop its thoughts, trim it, put an empty thought before it. A model that samples turn by
turn has read what it has read, so after every turn the whole conversation is rendered again and
must start, byte for byte, with what the model has read and written. Only what follows is encoded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from core.errors import ChatTemplateError, HistoryRewrittenError
from core.trajectory.spans import SpanType
from core.trajectory.template import (
    Piece,
    ReadCall,
    Rewritten,
    Written,
    first_difference,
    refuse_control_texts,
    shared_start,
)
from core.trajectory.tokens import TokenCodec

Message = dict[str, Any]
Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]], bool], str]
"""Messages, tools, and whether the opening of the assistant's next turn is wanted, to text."""

PROBE = "Zebra"
"""Content of messages that are rendered to learn a template's frames."""
PROBE_TOOL = {
    "type": "function",
    "function": {"name": PROBE, "description": PROBE, "parameters": {"type": "object"}},
}


@dataclass(frozen=True)
class ChatTemplate:
    """How a tokenizer's chat template frames the messages of one world.

    Attributes:
        render: The template.
        codec: The tokenizer that it belongs to.
        tools: Schemas of the world's tools, in the form ``{"type": "function", "function": …}``.
        control_texts: Texts that only the template may write.
        result_tags: What surrounds a tool result; taken off where the template frames results.
        branches: Go on in a branch where history is rewritten, instead of refusing.
    """

    render: Render
    codec: TokenCodec
    tools: tuple[Mapping[str, Any], ...] = ()
    control_texts: tuple[str, ...] = ()
    result_tags: tuple[str, str] = ("", "")
    branches: bool = False

    @property
    def lists_tools(self) -> bool:
        """Whether the template shows tools, and so knows calls and results as messages."""
        return self._knows_tools

    @cached_property
    def _knows_tools(self) -> bool:
        return PROBE in self.render([_system(""), _user("")], [PROBE_TOOL], True)

    @cached_property
    def generation_prompt(self) -> str:
        """What stands before the assistant's first token; all of it is context."""
        asked = [_system(PROBE), _user(PROBE)]
        return _rest(self.render(asked, [], False), self.render(asked, [], True))

    @cached_property
    def supplied(self) -> str:
        """The part of the generation prompt that the template does not write before past turns."""
        asked = [_system(PROBE), _user(PROBE)]
        said = self.render([*asked, _assistant(PROBE)], [], False)
        header = said.removeprefix(self.render(asked, [], False)).partition(PROBE)[0]
        return self.generation_prompt[shared_start(self.generation_prompt, header) :]

    def conversation(self) -> "ChatConversation":
        """Start a conversation."""
        return ChatConversation(self)

    def shown_tools(self) -> Sequence[Mapping[str, Any]]:
        """Return the tools that the template is given."""
        return self.tools if self.lists_tools else ()

    def results(self, texts: Sequence[str]) -> list[Message]:
        """Return the results of one turn as messages: of their own, or together as a user's."""
        if not self.lists_tools:
            return [_user("\n".join(texts))]
        first, last = self.result_tags
        bare = [text.removeprefix(first).removesuffix(last).strip("\n") for text in texts]
        return [{"role": "tool", "content": text} for text in bare]

    def check_tokens(self, pieces: Sequence[str], what: str) -> None:
        """Refuse texts whose tokens depend on whether they are encoded one by one.

        Raises:
            ChatTemplateError: The tokens of the whole are not those of the pieces.
        """
        apart = [token for piece in pieces for token in self.codec.encode(piece)]
        whole = self.codec.encode("".join(pieces))
        if apart != whole:
            at = shared_start(apart, whole)
            shown = [
                f"{tokens[at : at + 4]} {self.codec.decode(tokens[at : at + 4])!r}"
                for tokens in (apart, whole)
            ]
            before = len(self.codec.decode(whole[:at]).encode())
            raise ChatTemplateError(
                f"{what}: tokens differ from byte {before} on; piece by piece {shown[0]}, as a "
                f"whole {shown[1]}",
                "The template's frames must start and end with special tokens; use another one.",
            )


class ChatConversation:
    """One conversation: its messages, and all that the model has read so far as the template's."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._opening: list[Piece] = []
        self._messages: list[Message] = []
        self._told = ""

    def open(self, system_text: str, user_text: str, privileged: str | None = None) -> list[Piece]:
        """Return the segments up to where the assistant's first turn starts.

        Raises:
            TrajectoryError: A text contains a control text.
            HistoryRewrittenError: The template changes a message when the next one follows it.
            ChatTemplateError: The segments have other tokens than the whole prompt.
        """
        heads = [("sys", _system(system_text))]
        if privileged is not None:
            heads.append(("privileged", _system(privileged)))
        heads.append(("user", _user(user_text)))
        pieces = [self._head(key, message) for key, message in heads]
        self._opening = list(pieces)
        prompt = self._render(self._messages, prompt=True)
        key, text = pieces[-1].key, pieces[-1].text + _rest(self._told, prompt)
        pieces[-1] = Piece(SpanType.USER, key, text)
        self._told = prompt
        self._template.check_tokens([piece.text for piece in pieces], "the prompt")
        return pieces

    def answer(self, turn: Written, results: Sequence[str]) -> str | Rewritten:
        """Return what follows a turn, or the conversation as the template now writes it.

        Raises:
            TrajectoryError: A result contains a control text.
            HistoryRewrittenError: It would be written differently, and branches are not allowed.
            ChatTemplateError: The template cannot write it, or the new segment has other tokens
                after this turn than alone.
        """
        for text in results:
            refuse_control_texts("tool", text, self._template.control_texts)
        told = self._told + turn.text
        best: tuple[int, list[Message], str] | None = None
        for messages, rendered in self._candidates(turn, results):
            # An end token of another kind is the model's, and the template's follows it.
            for known in (told + turn.end, told):
                if rendered.startswith(known):
                    return self._go_on(messages, rendered, known, turn)
            kept = shared_start(rendered, told)
            if best is None or kept > best[0]:
                best = kept, messages, rendered
        assert best is not None, "there is a candidate, or the template has raised"
        _, messages, rendered = best
        if not self._template.branches:
            raise HistoryRewrittenError(
                "the chat template rewrites what the model has read and written: "
                + first_difference(told, rendered[: len(told)]),
                "Set rollout.template=tokenizer_branching, or rollout.template=chatml.",
            )
        return self._rewrite(messages, rendered)

    def _head(self, key: str, message: Message) -> Piece:
        refuse_control_texts(message["role"], message["content"], self._template.control_texts)
        self._messages.append(message)
        rendered = self._render(self._messages, prompt=False)
        kind = SpanType.USER if key == "user" else SpanType.SYSTEM
        piece = Piece(kind, key, _rest(self._told, rendered))
        if not piece.text:
            raise ChatTemplateError(
                f"the chat template writes nothing for the {message['role']} message alone",
                "Set rollout.template=chatml: each message must have a place of its own.",
            )
        self._told = rendered
        return piece

    def _candidates(
        self, turn: Written, results: Sequence[str]
    ) -> Iterator[tuple[list[Message], str]]:
        """Yield the ways to put a turn into messages that the template accepts, rendered."""
        refused: ChatTemplateError | None = None
        found = False
        for said in self._readings(turn):
            messages = [*self._messages, said, *self._template.results(results)]
            try:
                rendered = self._render(messages, prompt=True)
            except ChatTemplateError as error:
                refused = error
                continue
            found = True
            yield messages, rendered
        if refused is not None and not found:
            raise refused

    def _readings(self, turn: Written) -> Iterator[Message]:
        """Yield a turn as a message: with its call apart where templates know calls, or as text."""
        supplied = self._template.supplied
        for before in dict.fromkeys(("", supplied)):
            if turn.read.kind == "tool_call" and self._template.lists_tools:
                calls = [_call(call) for call in turn.read.calls]
                prose = before + turn.text[: turn.read.blocks[0][0]]
                for content in dict.fromkeys((prose.removesuffix("\n"), prose)):
                    yield _assistant(content) | {"tool_calls": calls}
            yield _assistant(before + turn.text)

    def _go_on(self, messages: list[Message], rendered: str, known: str, turn: Written) -> str:
        following = rendered[len(known) :]
        self._template.check_tokens([turn.text + turn.end, following], "a turn and its results")
        self._messages, self._told = messages, rendered
        return following

    def _rewrite(self, messages: list[Message], rendered: str) -> Rewritten:
        """Start anew: the first messages as they were where they still are, the rest as history."""
        pieces: list[Piece] = []
        told = ""
        for piece in self._opening:
            if not rendered.startswith(told + piece.text):
                break
            pieces.append(piece)
            told += piece.text
        if not pieces:
            raise HistoryRewrittenError(
                "the chat template rewrites the system message: "
                + first_difference(self._opening[0].text, rendered),
                "Set rollout.template=chatml.",
            )
        pieces.append(Piece(SpanType.HISTORY, "history", rendered.removeprefix(told)))
        self._template.check_tokens([piece.text for piece in pieces], "the rewritten history")
        self._messages, self._told = messages, rendered
        return Rewritten(pieces)

    def _render(self, messages: Sequence[Message], *, prompt: bool) -> str:
        return self._template.render(messages, self._template.shown_tools(), prompt)


def _rest(told: str, rendered: str) -> str:
    if not rendered.startswith(told):
        raise HistoryRewrittenError(
            "the chat template changes a message when another one follows it: "
            + first_difference(told, rendered[: len(told)]),
            "Use rollout.template=chatml.",
        )
    return rendered[len(told) :]


def _system(content: str) -> Message:
    return {"role": "system", "content": content}


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


def _call(call: ReadCall) -> Message:
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return {"type": "function", "function": function}
