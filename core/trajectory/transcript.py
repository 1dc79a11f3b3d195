"""A conversation as tokens: built segment by segment, never re-tokenised.

Every segment is encoded on its own. Ids that a model sampled enter as they are; text is only ever
decoded from them. So the tokens of a trajectory are exactly those that the model saw and wrote.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from core.errors import TokenizerMismatchError, TrajectoryError
from core.trajectory.spans import Span, SpanType
from core.trajectory.template import CHATML, TurnTemplate
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory, Turn


class ReadTurn(Protocol):
    """What the transcript must know of a parsed turn (``core.environments.protocol``)."""

    @property
    def kind(self) -> str:
        """``tool_call``, ``final`` or ``parse_error``."""
        ...

    @property
    def blocks(self) -> Sequence[tuple[int, str | None]]:
        """Character at which each typed block starts, and the tool that it calls."""
        ...


_BLOCK_TYPES = {"tool_call": SpanType.ASSISTANT_TOOL_CALL, "final": SpanType.ASSISTANT_FINAL}


def turn_text(codec: TokenCodec, token_ids: Sequence[int]) -> str:
    """Return the text of a generated turn, without the end-of-turn token where it closes it.

    This is the text that the protocol's parser reads; its offsets split the turn.
    """
    ends = bool(token_ids) and token_ids[-1] in codec.eos_ids
    return codec.decode(token_ids[:-1] if ends else token_ids)


def prefix_length(codec: TokenCodec, token_ids: Sequence[int], block_start: int) -> int:
    """Return how many tokens lie wholly before character ``block_start``.

    A token that straddles the start belongs to the block.
    """
    # Decoded length never falls as tokens are added, so halving finds the boundary.
    lengths = range(1, len(token_ids) + 1)
    return bisect_right(lengths, block_start, key=lambda n: len(codec.decode(token_ids[:n])))


def end_of_turn(codec: TokenCodec, template: TurnTemplate = CHATML) -> int:
    """Return the id by which a model closes its message, or its first one where none frames it."""
    closing = template.close.strip()
    return next((one for one in codec.eos_ids if codec.decode([one]) == closing), codec.eos_ids[0])


class Transcript:
    """Builds one trajectory: ``start``, then generated turns and observations in alternation.

    Args:
        codec: Encodes context and decodes what was sampled.
        template: How messages are framed.
    """

    def __init__(self, codec: TokenCodec, template: TurnTemplate = CHATML) -> None:
        self._codec = codec
        self._template = template
        self._spans: list[Span] = []
        self._logprobs: list[float] = []
        self._kept_mass: list[float] = []
        self.token_ids: list[int] = []
        """All tokens so far."""
        self.num_turns = 0
        """Generated turns so far."""

    def start(self, system_text: str, user_text: str, privileged: str | None = None) -> list[int]:
        """Open the conversation and return its ids, up to where the assistant's first turn starts.

        Args:
            system_text: The system prompt; its segment comes first, so that equal system prompts
                are equal prefixes (``system_ids``).
            user_text: The task.
            privileged: A second system message, for a teacher that acts itself.

        Raises:
            TrajectoryError: A text contains a control text of the template.
        """
        frame = self._template
        self._add_text(SpanType.SYSTEM, "sys", frame.message("system", system_text))
        if privileged is not None:
            self._add_text(SpanType.SYSTEM, "privileged", frame.message("system", privileged))
        user = frame.message("user", user_text) + frame.header("assistant")
        self._add_text(SpanType.USER, "user", user)
        return list(self.token_ids)

    @property
    def system_ids(self) -> list[int]:
        """Ids of the system segment, the prefix that episodes of one world share."""
        return self.token_ids[: self._spans[0].end]

    def add_generated(
        self,
        token_ids: Sequence[int],
        parsed: ReadTurn,
        *,
        logprobs: Sequence[float] | None = None,
        kept_mass: Sequence[float] | None = None,
        tool_call_ids: Sequence[str] = (),
    ) -> None:
        """Append a turn of the model: its prose and each of its typed blocks as a span.

        Everything sampled is kept: an end-of-turn token, and characters after a stop text. What
        lies between two blocks belongs to the first.

        Args:
            token_ids: The sampled ids.
            parsed: What the parser read in ``turn_text`` of these ids.
            logprobs: Nats, one per token; None where nothing was sampled (oracle).
            kept_mass: Probability that truncation kept, one per token; None if untruncated.
            tool_call_ids: Names of the calls in the turn records.

        Raises:
            TrajectoryError: The turn is empty or out of order, or a list has another length.
        """
        self._check_order(expects_turn=True)
        _check_lengths(token_ids, logprobs=logprobs, kept_mass=kept_mass)
        starts = [prefix_length(self._codec, token_ids, start) for start, _ in parsed.blocks]
        bounds = [*starts, len(token_ids)]
        key, facts = f"gen:{self.num_turns}", {"turn_id": self.num_turns}
        if prose := token_ids[: bounds[0]]:
            text = self._codec.decode(prose)
            self._add(SpanType.ASSISTANT_TEXT, f"{key}:text", prose, text, facts)
        for place, (_, name) in enumerate(parsed.blocks):
            if not (block := token_ids[bounds[place] : bounds[place + 1]]):
                continue
            call_id = tool_call_ids[place] if tool_call_ids else None
            own = {**facts, "tool_name": name, "tool_call_id": call_id}
            own_key = f"{key}:block:{place}" if place else f"{key}:block"
            text = self._codec.decode(block)
            self._add(_BLOCK_TYPES[parsed.kind], own_key, block, text, own)
        self._logprobs += logprobs or ()
        self._kept_mass += kept_mass or ()
        self.num_turns += 1

    def add_observation(
        self,
        text: str,
        *,
        tool_name: str | None = None,
        tool_call_id: str | None = None,
        env_state_id: str | None = None,
    ) -> list[int]:
        """Append what the environment answered and return its ids: what the model reads next.

        The segment closes the assistant's message, holds ``text`` as a user message and opens the
        next assistant message. Where the model itself wrote the token that closes its message, that
        token stays the model's and the segment starts with the rest of the closing text.

        Raises:
            TrajectoryError: No turn precedes it, or the text contains a control text.
        """
        self._check_order(expects_turn=False)
        frame = self._template
        body = frame.message("user", text) + frame.header("assistant")
        facts = {"tool_name": tool_name, "tool_call_id": tool_call_id, "env_state_id": env_state_id}
        turn = self.num_turns - 1
        facts_of_turn = {"turn_id": turn, **facts}
        return self._add_text(
            SpanType.TOOL_RESULT, f"obs:{turn}", self._rest_of_close() + body, facts_of_turn
        )

    def build(self, *, turns: Sequence[Turn] = (), **facts: Any) -> Trajectory:
        """Return the trajectory.

        Args:
            turns: Records of the turns, ``turn_id`` counting from 0.
            facts: The other fields of ``Trajectory``; tokens, spans, log-probabilities, kept mass
                and the tokenizer's digest come from this transcript.

        Raises:
            pydantic.ValidationError: The parts disagree.
        """
        return Trajectory(
            token_ids=list(self.token_ids),
            spans=list(self._spans),
            turns=list(turns),
            logprobs=list(self._logprobs),
            kept_mass=list(self._kept_mass),
            tokenizer_digest=self._codec.digest,
            **facts,
        )

    def _rest_of_close(self) -> str:
        last = self.token_ids[-1]
        written = self._codec.decode([last]) if last in self._codec.eos_ids else ""
        close = self._template.close
        return close.removeprefix(written) if written else close

    def _check_order(self, *, expects_turn: bool) -> None:
        after_turn = bool(self._spans) and self._spans[-1].is_model
        if not self._spans or after_turn == expects_turn:
            wanted = "start or an observation" if expects_turn else "a generated turn"
            raise TrajectoryError(
                f"turn {self.num_turns} is out of order", f"It must follow {wanted}."
            )

    def _add_text(
        self, span_type: SpanType, key: str, text: str, facts: Mapping[str, Any] | None = None
    ) -> list[int]:
        token_ids = self._codec.encode(text)
        self._add(span_type, key, token_ids, text, facts or {})
        return token_ids

    def _add(
        self,
        span_type: SpanType,
        key: str,
        token_ids: Sequence[int],
        text: str,
        facts: Mapping[str, Any],
    ) -> None:
        start = len(self.token_ids)
        self.token_ids.extend(token_ids)
        end = len(self.token_ids)
        self._spans.append(
            Span(span_type=span_type, start=start, end=end, segment_key=key, text=text, **facts)
        )


def _check_lengths(token_ids: Sequence[int], **numbers: Sequence[float] | None) -> None:
    if not token_ids:
        raise TrajectoryError("a generated turn has no tokens", "End the episode before this turn.")
    for name, values in numbers.items():
        if values is not None and len(values) != len(token_ids):
            raise TrajectoryError(
                f"{name} has {len(values)} entries for {len(token_ids)} sampled tokens",
                "Give one number per token, or None.",
            )


class TeacherView(NamedTuple):
    """What a teacher with a hint reads: the student's segments and one more."""

    token_ids: list[int]
    spans: list[Span]


def teacher_view(
    trajectory: Trajectory,
    privileged_text: str,
    codec: TokenCodec,
    template: TurnTemplate = CHATML,
) -> TeacherView:
    """Return a trajectory with a hint: a system message keyed ``privileged`` after the system one.

    All other segments keep their ids and keys and move by a constant, which is what alignment
    relies on.

    Raises:
        TokenizerMismatchError: ``codec`` did not make the trajectory's ids.
        TrajectoryError: The trajectory has no ``sys`` segment or has a hint already, or the hint
            contains a control text.
    """
    if codec.digest != trajectory.tokenizer_digest:
        raise TokenizerMismatchError(
            f"{trajectory.trajectory_id} was made by another tokenizer",
            "Use the tokenizer of the rollouts.",
        )
    keys = [span.segment_key for span in trajectory.spans]
    if "sys" not in keys or "privileged" in keys:
        raise TrajectoryError(
            f"{trajectory.trajectory_id} has segments {keys}",
            "A hint follows a segment 'sys', once.",
        )
    split = keys.index("sys") + 1
    cut = trajectory.spans[split - 1].end
    text = template.message("system", privileged_text)
    hint = codec.encode(text)
    shift = len(hint)
    added = Span(
        span_type=SpanType.SYSTEM,
        start=cut,
        end=cut + shift,
        segment_key="privileged",
        text=text,
    )
    moved = [
        span.model_copy(update={"start": span.start + shift, "end": span.end + shift})
        for span in trajectory.spans[split:]
    ]
    token_ids = [*trajectory.token_ids[:cut], *hint, *trajectory.token_ids[cut:]]
    return TeacherView(token_ids, [*trajectory.spans[:split], added, *moved])
