"""Going on from where another policy was."""

from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.openings import before_last_turn

LIMITS = EpisodeLimits(4, 16, 320, max_parse_errors=4)


def played(toy, calculator, tasks, **changes):
    return run_episodes(
        toy,
        calculator,
        tasks,
        LIMITS,
        SamplingSpec(0.0),
        seed=5,
        trajectory_ids=[f"{task.task_id}:0" for task in tasks],
        policy_version=7,
        model_digest="ab" * 32,
        slots=4,
        **changes,
    )


def test_a_greedy_policy_that_goes_on_from_itself_plays_the_same_episode(toy, calculator, tasks):
    whole = played(toy, calculator, tasks[:6])
    openings = [before_last_turn(one) for one in whole]
    assert max(map(len, openings)) > 0
    again = played(toy, calculator, tasks[:6], openings=openings)
    for one, other in zip(whole, again, strict=True):
        assert other.token_ids == one.token_ids
        assert other.turns == one.turns
        assert other.counters == one.counters
        assert other.verification == one.verification


def test_an_opening_is_all_turns_but_the_last_as_they_were_sampled(toy, calculator, tasks):
    (one,) = played(toy, calculator, tasks[:1])
    opening = before_last_turn(one)
    assert len(opening) == len(one.turns) - 1
    written = [place for place, own in enumerate(one.model_mask) if own]
    ids = [token for turn in opening for token in turn.token_ids]
    assert ids == [one.token_ids[place] for place in written[: len(ids)]]
    logprobs = [value for turn in opening for value in turn.logprobs]
    assert logprobs == one.logprobs[: len(ids)]


def test_an_episode_that_ends_with_its_opening_samples_nothing(toy, calculator, tasks):
    whole = played(toy, calculator, tasks[:2])
    short = EpisodeLimits(1, 16, 320, max_parse_errors=4)
    done = run_episodes(
        toy, calculator, tasks[:2], short, SamplingSpec(0.0), seed=5,
        trajectory_ids=["a", "b"], policy_version=7, model_digest="d", slots=2,
        openings=[before_last_turn(one)[:1] for one in whole],
    )  # fmt: skip
    for one, other in zip(whole, done, strict=True):
        assert len(other.turns) == 1
        assert other.turns[0].tool_calls[0].name == one.turns[0].tool_calls[0].name
