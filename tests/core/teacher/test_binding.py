from dataclasses import replace

import pytest

from core.errors import AlignmentError, StaleCacheError
from core.teacher.binding import check_binding, check_teacher

LAYOUT = [("system", 3), ("user", 4), ("assistant_text", 3)]


@pytest.fixture
def pair(small_toy, write_episode, scored_by):
    """Two episodes of version 3 and their targets."""
    episodes = [write_episode(LAYOUT, n, trajectory_id=f"t{n}", policy_version=3) for n in range(2)]
    return episodes, scored_by(small_toy(2), episodes)[0]


def test_targets_fit_the_trajectories_that_were_scored(pair):
    episodes, scored = pair
    check_binding(scored, episodes)


def test_targets_of_another_policy_version_are_stale(pair):
    episodes, scored = pair
    newer = [episodes[0], episodes[1].model_copy(update={"policy_version": 4})]
    with pytest.raises(StaleCacheError, match=r"t1: policy_version is 4, .* version 3"):
        check_binding(scored, newer)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"trajectory_id": "other"}, "trajectory_id"),
        ({"tokenizer_digest": "other"}, "tokenizer_digest"),
        ({"token_ids": None}, "token_ids"),
    ],
)
def test_the_differing_episode_and_field_are_named(pair, change, field):
    """A prompt token is enough, although no target is among it."""
    episodes, scored = pair
    ids = [episodes[1].token_ids[0] + 1, *episodes[1].token_ids[1:]]
    other = episodes[1].model_copy(update={k: v or ids for k, v in change.items()})
    with pytest.raises(AlignmentError, match=rf"targets of t1 do not fit .*{field} differ"):
        check_binding(scored, [episodes[0], other])


def test_a_target_that_is_not_the_next_token_is_named(pair):
    episodes, scored = pair
    first = replace(scored.selected[0], target_ids=[1, 2, 3])
    with pytest.raises(AlignmentError, match="do not fit t0: target_ids differ"):
        check_binding(replace(scored, selected=(first, scored.selected[1])), episodes)


def test_another_number_of_trajectories_is_refused(pair):
    episodes, scored = pair
    with pytest.raises(AlignmentError, match="1 trajectories but targets for 2"):
        check_binding(scored, episodes[:1])


def test_targets_of_another_teacher_are_refused(pair):
    _, scored = pair
    check_teacher(scored, scored.provenance.teacher_digest)
    with pytest.raises(AlignmentError, match="the targets are of the teacher"):
        check_teacher(scored, "0" * 64)
