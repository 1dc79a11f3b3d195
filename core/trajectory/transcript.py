"""A conversation as tokens: built segment by segment, never re-tokenised.

Every segment is encoded on its own. Ids that a model sampled enter as they are; text is only ever
decoded from them. So the tokens of a trajectory are exactly those that the model saw and wrote.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import TrajectoryError
from core.trajectory.branch import Branch, rows_of
from core.trajectory.spans import Span, SpanType
from core.trajectory.template import (
    CHATML,
    Piece,
    ReadTurn,
    Rewritten,
    Template,
    TurnTemplate,
    Written,
)
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory, Turn

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
    """Builds one episode: ``start``, then generated turns and observations in alternation.

    Where a template rewrites what the model has seen, the episode goes on in a new branch: a
    trajectory of its own that starts with the rewritten history as context. Every sampled token is
    a model token of exactly one branch, the one in which it was sampled.

    Args:
        codec: Encodes context and decodes what was sampled.
        template: How messages are framed.
    """

    def __init__(self, codec: TokenCodec, template: Template = CHATML) -> None:
        self._codec = codec
        self._conversation = template.conversation()
        self._left: list[Branch] = []
        self._branch = Branch()
        self._written: Written | None = None
        self.num_turns = 0
        """Generated turns so far, in all branches."""

    @property
    def token_ids(self) -> list[int]:
        """All tokens so far of the newest branch: what the model reads."""
        return self._branch.token_ids

    @property
    def num_branches(self) -> int:
        """Branches so far, 1 where nothing was rewritten."""
        return len(self._left) + 1

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
        self._add_pieces(self._conversation.open(system_text, user_text, privileged))
        return list(self.token_ids)

    @property
    def system_ids(self) -> list[int]:
        """Ids of the system segment, the prefix that episodes of one world share."""
        return self.token_ids[: self._branch.spans[0].end]

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
        self._branch.logprobs += logprobs or ()
        self._branch.kept_mass += kept_mass or ()
        self._written = self._as_written(token_ids, parsed)
        self.num_turns += 1

    def add_observation(
        self,
        text: str | Sequence[str],
        *,
        tool_name: str | None = None,
        tool_call_id: str | None = None,
        env_state_id: str | None = None,
    ) -> list[int]:
        """Append what the environment answered and return the ids that the model reads next.

        One segment closes the assistant's message, holds the answer and opens the next assistant
        message. Where the model itself wrote the token that closes its message, that token stays
        the model's and the segment starts with the rest of the closing text.

        Args:
            text: The result, or several results of one turn, which make one segment.
            tool_name: The called tool.
            tool_call_id: Name of the call.
            env_state_id: State of the world after it.

        Returns:
            Ids that follow those of the branch; where ``num_branches`` has grown, all ids of the
            new branch, which share no cache with the old one.

        Raises:
            TrajectoryError: No turn precedes it, or the text contains a control text.
            HistoryRewrittenError: The template rewrites what the model has seen, and may not.
        """
        self._check_order(expects_turn=False)
        results = [text] if isinstance(text, str) else list(text)
        assert self._written is not None, "the order was checked"
        answer = self._conversation.answer(self._written, results)
        if isinstance(answer, Rewritten):
            self._left.append(self._branch)
            self._branch = Branch()
            self._add_pieces(answer.pieces)
            return list(self.token_ids)
        facts = {"tool_name": tool_name, "tool_call_id": tool_call_id, "env_state_id": env_state_id}
        turn = self.num_turns - 1
        piece = Piece(SpanType.TOOL_RESULT, f"obs:{turn}", answer)
        return self._add_piece(piece, {"turn_id": turn, **facts})

    def build(self, *, turns: Sequence[Turn] = (), **facts: Any) -> Trajectory:
        """Return the newest branch: the whole episode where nothing was rewritten.

        Args:
            turns: Records of the turns, ``turn_id`` counting from 0.
            facts: The other fields of ``Trajectory``; tokens, spans, log-probabilities, kept mass
                and the tokenizer's digest come from this transcript.

        Raises:
            pydantic.ValidationError: The parts disagree.
        """
        return self.build_branches(turns=turns, **facts)[-1]

    def build_branches(
        self, *, trajectory_id: str, turns: Sequence[Turn] = (), **facts: Any
    ) -> list[Trajectory]:
        """Return one trajectory per branch, the last of which tells of the whole episode.

        Earlier branches are named ``{trajectory_id}:b0``, ``:b1``, …, hold the turns up to their
        own end, and count no events. A last branch that the model never read is left out.

        Args:
            trajectory_id: Name of the episode and of its last branch.
            turns: Records of the turns, ``turn_id`` counting from 0.
            facts: As for ``build``.
        """
        branches = [*self._left, self._branch]
        own = {"trajectory_id": trajectory_id, "tokenizer_digest": self._codec.digest}
        return rows_of(branches, turns, {**facts, **own})

    def _as_written(self, token_ids: Sequence[int], parsed: ReadTurn) -> Written:
        last = token_ids[-1]
        end = self._codec.decode([last]) if last in self._codec.eos_ids else ""
        return Written(turn_text(self._codec, token_ids), end, parsed)

    def _check_order(self, *, expects_turn: bool) -> None:
        spans = self._branch.spans
        after_turn = bool(spans) and spans[-1].is_model
        if not spans or after_turn == expects_turn:
            wanted = "start or an observation" if expects_turn else "a generated turn"
            raise TrajectoryError(
                f"turn {self.num_turns} is out of order", f"It must follow {wanted}."
            )

    def _add_pieces(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._add_piece(piece, {})

    def _add_piece(self, piece: Piece, facts: Mapping[str, Any]) -> list[int]:
        token_ids = self._codec.encode(piece.text)
        self._add(piece.span_type, piece.key, token_ids, piece.text, facts)
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
        self._branch.spans.append(
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
