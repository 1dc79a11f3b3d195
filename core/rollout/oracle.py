"""Oracle traces: the environment's own solution, written by the machinery that records students."""

from core.environments.base import Environment, OracleAction, OracleFinal, Task
from core.environments.protocol import render_tool_call
from core.rollout.episode import Episode
from core.rollout.limits import EpisodeLimits
from core.rollout.turns import GeneratedTurn
from core.trajectory.template import CHATML, Template
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import TerminationReason, Trajectory
from core.trajectory.transcript import end_of_turn

UNLIMITED = 2**31


def oracle_trajectory(
    environment: Environment,
    task: Task,
    codec: TokenCodec,
    *,
    max_turns: int | None = None,
    template: Template = CHATML,
) -> Trajectory:
    """Play the environment's reference actions; see ``oracle_branches``, whose last it returns."""
    return oracle_branches(environment, task, codec, max_turns=max_turns, template=template)[-1]


def oracle_branches(
    environment: Environment,
    task: Task,
    codec: TokenCodec,
    *,
    max_turns: int | None = None,
    template: Template = CHATML,
) -> list[Trajectory]:
    """Play the environment's reference actions as if a student had written them.

    What the environment raises is raised here: an oracle that cannot play its own solution is a
    defect, and a cut trace would be trained on.

    Args:
        environment: The world.
        task: What to solve.
        codec: Tokenizer of the student that will learn from it.
        max_turns: Turns after which the trace is cut; None plays all actions.
        template: How messages are framed.

    Returns:
        A trajectory named ``{task_id}:oracle`` without log-probabilities; where the template
        rewrites history, one per branch.
    """
    actions = environment.oracle_actions(task)
    limits = EpisodeLimits(
        max_turns=max_turns or len(actions),
        max_new_tokens_per_turn=UNLIMITED,
        max_total_tokens=UNLIMITED,
        max_repeated_calls=UNLIMITED,
    )
    episode = Episode(environment, task, codec, limits, template=template, raise_defects=True)
    try:
        episode.begin()
        for action in actions:
            if episode.reason is not None:
                break
            episode.take(_turn(environment, action, codec))
    finally:
        episode.close()
    if episode.reason is None:
        episode.reason = TerminationReason.MAX_TURNS
    return episode.build_branches({"source": "oracle"}, trajectory_id=f"{task.task_id}:oracle")


def _turn(environment: Environment, action: OracleAction, codec: TokenCodec) -> GeneratedTurn:
    if isinstance(action, OracleFinal):
        text = environment.write_answer(action.answer)
    else:
        text = render_tool_call(action.name, action.arguments)
    token_ids = codec.encode(text)
    if any(stop in text for stop in environment.stops):
        return GeneratedTurn(0, token_ids, [], None, "stop")
    # Nothing else would tell a student that learns from the trace where to stop.
    return GeneratedTurn(0, [*token_ids, end_of_turn(codec)], [], None, "eos")
