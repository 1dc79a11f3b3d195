"""One episode: turns of a model, calls of tools, and exactly one reason to end."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from core.environments.base import Environment, FailureCategory, Task, VerificationResult
from core.environments.protocol import (
    CALL_CLOSE,
    CALL_OPEN,
    FINAL_OPEN,
    ParsedTurn,
    render_tool_result,
)
from core.environments.tool_limits import storable
from core.models.framing import system_text
from core.rollout.exchange import Exchange, call_ids, say, unread_turn, verification_of
from core.rollout.limits import EpisodeLimits
from core.rollout.turns import GeneratedTurn
from core.rollout.world import World
from core.trajectory.template import CHATML, Template
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import (
    Counters,
    TerminationReason,
    Trajectory,
    Turn,
    VerificationRecord,
)
from core.trajectory.transcript import Transcript, turn_text

logger = logging.getLogger(__name__)


class Episode:
    """The state machine between a model and an environment.

    ``begin``, then ``take`` every generated turn, until ``reason`` is set. A tool or verifier that
    raises ends its episode with a reason and an observation of its own; it never ends the others.

    A caller with other things to do gives the turn to ``receive`` instead, and asks ``advance``
    for as long as the world of a slow environment is at work.

    Args:
        environment: The world; its own, for the length of the episode.
        task: What to solve.
        codec: The model's tokenizer.
        limits: When to stop.
        template: How messages are framed.
        raise_defects: Raise what the environment raises, where a broken episode must not pass for
            data.
        wake: Set whenever a slow environment has finished something.
        hinted: Show the model the environment's hint: a teacher that acts itself.
    """

    def __init__(
        self,
        environment: Environment,
        task: Task,
        codec: TokenCodec,
        limits: EpisodeLimits,
        *,
        template: Template = CHATML,
        raise_defects: bool = False,
        wake: threading.Event | None = None,
        hinted: bool = False,
    ) -> None:
        self.task = task
        self._hint = environment.privileged_context(task) if hinted else None
        self.transcript = Transcript(codec, template)
        self._template = template
        self.reason: TerminationReason | None = None
        """Why it ended; None while it goes on."""
        self._environment = environment
        self._world = World(environment, wake or threading.Event())
        self._pending: Callable[[], list[int] | None] | None = None
        self._codec = codec
        self._limits = limits
        self._raise_defects = raise_defects
        self._turns: list[Turn] = []
        self._events: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._verification = VerificationRecord(
            solved=False,
            reward=0.0,
            expected=task.answer,
            failure_category=FailureCategory.NO_FINAL_ANSWER,
        )
        self._metadata: dict[str, Any] = {}

    @property
    def turn(self) -> int:
        """Index of the turn that comes next."""
        return self.transcript.num_turns

    @property
    def budget(self) -> int:
        """Tokens that the next turn may have: at least 1 while the episode goes on."""
        remaining = self._limits.max_total_tokens - len(self.transcript.token_ids)
        return min(self._limits.max_new_tokens_per_turn, remaining)

    @property
    def deadline(self) -> float:
        """Instant of ``time.monotonic`` at which the world's present work is given up."""
        return self._world.deadline

    def begin(self) -> list[int]:
        """Reset the environment and return the prompt. The episode may end with it."""
        self._world.call("reset", lambda: self._environment.reset(self.task))
        try:
            observation = self._world.join().result()
            text, state_id = storable(str(observation.text)), storable(str(observation.state_id))
        except (Exception, SystemExit) as error:
            self._end_by_defect(error)
            return self._open(self.task.prompt)
        self._metadata["initial_observation_state_id"] = state_id
        token_ids = self._open(text)
        self._open_turn()
        return token_ids

    def take(self, turn: GeneratedTurn) -> list[int]:
        """Record a generated turn, act on it, and return what the model reads next.

        Returns:
            Ids of the observation, or of the whole new branch where ``transcript.num_branches`` has
            grown; of no use once ``reason`` is set.
        """
        token_ids = self.receive(turn)
        while token_ids is None:
            self._world.join()
            token_ids = self.advance()
        return token_ids

    def receive(self, turn: GeneratedTurn) -> list[int] | None:
        """Record a generated turn and begin to act on it.

        Returns:
            What ``take`` returns, or None while the world is at work.
        """
        grammar = self._environment.grammar
        text = turn_text(self._codec, turn.token_ids)
        parsed = self._environment.read_turn(text)
        final = parsed.kind == "final"
        self.transcript.add_generated(
            turn.token_ids,
            parsed,
            logprobs=turn.logprobs or None,
            kept_mass=turn.kept_mass,
            tool_call_ids=call_ids(self.turn, len(parsed.calls), grammar.max_calls),
        )
        self._events["assistant_turns"] += 1
        self._events["emitted_tool_calls"] += min(text.count(CALL_OPEN), grammar.max_calls)
        self._events["final_answers_emitted"] += final or FINAL_OPEN in text
        if parsed.kind == "parse_error":
            # Where several calls are permitted the model closes every turn itself.
            spoke = grammar.max_calls > 1 and CALL_CLOSE in text
            return self._refuse(parsed, closed=turn.stop == "eos" and not spoke)
        if final:
            cut = turn.stop == "length"
            self._pending = self._answer(parsed.final_answer or "", cut=cut)
        else:
            self._pending = self._call(parsed)
        return self.advance()

    def advance(self) -> list[int] | None:
        """Go on with a turn whose world was at work; returns what ``receive`` returns."""
        if self._pending is None:
            return []
        token_ids = self._pending()
        if token_ids is not None:
            self._pending = None
        return token_ids

    def close(self) -> None:
        """Let go of the environment's thread, where it has one."""
        self._world.close()

    def build(self, metadata: Mapping[str, Any], **facts: Any) -> Trajectory:
        """Return the finished episode; where it has branches, the last."""
        return self.build_branches(metadata, **facts)[-1]

    def build_branches(self, metadata: Mapping[str, Any], **facts: Any) -> list[Trajectory]:
        """Return the branches of the finished episode, most often one.

        Args:
            metadata: Facts about the rollout, beside those of task and environment.
            facts: ``trajectory_id``, ``policy_version`` and ``model_digest`` of ``Trajectory``.
        """
        own = {"difficulty": self.task.difficulty, "split": self.task.split, **self._metadata}
        return self.transcript.build_branches(
            turns=self._turns,
            task_id=self.task.task_id,
            environment=self._environment.name,
            verification=self._verification,
            termination_reason=self.reason,
            counters=Counters(**self._events),
            metadata={**metadata, **own, **self._environment.trajectory_metadata(self.task)},
            **facts,
        )

    def _open(self, text: str) -> list[int]:
        system = system_text(self._environment, self._template)
        return self.transcript.start(system, text, self._hint)

    def _open_turn(self) -> None:
        if self.turn >= self._limits.max_turns:
            self.reason = TerminationReason.MAX_TURNS
        elif self.budget <= 0:
            self.reason = TerminationReason.MAX_TOKENS

    def _answer(self, answer: str, *, cut: bool) -> Callable[[], list[int] | None]:
        """Have an answer verified; one that its budget cut off is verified as far as it goes."""
        self._turns.append(Turn(turn_id=self.turn - 1, is_final=True))
        self._world.call("verify", lambda: self._environment.verify(answer))

        def settle() -> list[int] | None:
            attempt = self._world.poll()
            if attempt is None:
                return None
            try:
                self._judge(attempt.result(), cut=cut)
            except (Exception, SystemExit) as error:
                defect = {"predicted": answer, "failure_category": FailureCategory.TOOL_ERROR}
                self._verification = self._verification.model_copy(update=defect)
                self._end_by_defect(error)
            return []

        return settle

    def _judge(self, verdict: VerificationResult, *, cut: bool) -> None:
        self._verification = verification_of(verdict)
        malformed = verdict.failure_category is FailureCategory.MALFORMED_ANSWER
        self._events["final_answers_verified"] += 1
        self._events["final_answers_format_valid"] += not malformed
        self.reason = TerminationReason.MAX_TOKENS if cut else TerminationReason.FINAL_ANSWER

    def _refuse(self, parsed: ParsedTurn, *, closed: bool) -> list[int]:
        """Tell the model that its turn cannot be read, unless it has closed it or failed too often.

        Args:
            parsed: What the parser found.
            closed: Whether the model ended the turn itself: it had nothing more to say.
        """
        self._events["parse_errors"] += 1
        self._events["invalid_tool_calls"] += 1
        error = str(parsed.error)
        self._turns.append(unread_turn(self.turn - 1, error))
        if closed:
            self.reason = TerminationReason.EOS_WITHOUT_FINAL
            return []
        if self._events["parse_errors"] >= max(self._limits.max_parse_errors, 1):
            self.reason = TerminationReason.PARSE_ERROR_LIMIT
            return []
        text = render_tool_result(ok=False, error=error, code=parsed.error_code)
        token_ids = self.transcript.add_observation(text)
        self._open_turn()
        return token_ids

    def _call(self, parsed: ParsedTurn) -> Callable[[], list[int] | None]:
        self._events["parsed_tool_calls"] += len(parsed.calls)
        most = self._limits.max_repeated_calls
        exchange = Exchange(
            parsed, self.turn - 1, self._environment, self._world, self._calls, most
        )

        def settle() -> list[int] | None:
            if not exchange.advance():
                return None
            self._events += exchange.events
            self.reason = exchange.reason
            if exchange.defect is not None:
                self._end_by_defect(exchange.defect)
            self._turns.append(exchange.turn())
            single = len(exchange.calls) == 1
            token_ids = self.transcript.add_observation(
                exchange.observations(),
                tool_name=exchange.calls[0].name if single else None,
                tool_call_id=exchange.call_ids[0] if single else None,
                env_state_id=exchange.results[-1].state_id or None,
            )
            if self.reason is None:
                self._open_turn()
            return token_ids

        return settle

    def _end_by_defect(self, error: BaseException) -> None:
        """End the episode because the environment raised."""
        if self._raise_defects:
            raise error
        message = say(error)
        logger.warning("%s: the environment raised: %s", self.task.task_id, message)
        self._metadata["environment_error"] = message
        self.reason = TerminationReason.ENVIRONMENT_ERROR
