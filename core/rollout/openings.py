"""The beginning of an episode as turns that another policy can go on from."""

from core.rollout.turns import GeneratedTurn
from core.trajectory.trajectory import Trajectory


def before_last_turn(trajectory: Trajectory) -> list[GeneratedTurn]:
    """Return all turns of an episode but the last, as they were sampled.

    What truncation kept is left out: who goes on may draw from an uncut distribution.

    Args:
        trajectory: A whole episode of a policy; a branch of a rewritten history has no turns here.
    """
    if trajectory.branches > 1:
        return []
    written = [place for place, own in enumerate(trajectory.model_mask) if own]
    logprobs = dict(zip(written, trajectory.logprobs, strict=bool(trajectory.logprobs)))
    places: dict[int, list[int]] = {}
    for span in trajectory.spans:
        if span.is_model and span.turn_id is not None:
            places.setdefault(span.turn_id, []).extend(range(span.start, span.end))
    return [
        GeneratedTurn(
            slot=0,
            token_ids=[trajectory.token_ids[place] for place in places[turn]],
            logprobs=[logprobs[place] for place in places[turn] if place in logprobs],
            kept_mass=None,
            stop="stop",
        )
        for turn in sorted(places)[:-1]
    ]
