"""Episodes and their branches in optimizer steps."""

from types import SimpleNamespace

import pytest

from core.training.episode_groups import episode_groups
from core.training.update import update

PARTS = [("system", 3), ("user", 4), ("assistant_tool_call", 2), ("tool_result", 3),
         ("assistant_final", 2)]  # fmt: skip


@pytest.mark.parametrize(
    ("whole", "size", "expected"),
    [
        ([1, 1, 1, 1, 1], 2, [(0, 2), (2, 4), (4, 5)]),
        ([1, 0, 1, 1], 3, [(0, 4)]),
        ([1, 0, 1, 1], 2, [(0, 3), (3, 4)]),
        ([0, 0, 1, 0, 1], 1, [(0, 3), (3, 5)]),
        ([], 4, []),
    ],
)
def test_branches_stay_together(whole, size, expected):
    rows = [SimpleNamespace(is_whole=bool(flag)) for flag in whole]
    groups = episode_groups(rows, size)
    assert [(group.start, group.stop) for group in groups] == expected


def test_an_episode_in_branches_is_one_episode_of_a_strict_step(
    small_toy, scored_by, state_of, write_episode
):
    """C23: an episode whose history was rewritten is two trajectories, and one episode."""
    place = {"parent_id": "t1", "branches": 2}
    episodes = [
        write_episode(PARTS, 0, trajectory_id="t0"),
        write_episode(PARTS, 1, trajectory_id="t1:b0", **place),
        write_episode(PARTS, 2, trajectory_id="t1", **place, branch_index=1),
        write_episode(PARTS, 3, trajectory_id="t2"),
    ]
    student, teacher = small_toy(1), small_toy(2)
    strict = ("train.rollouts_per_cycle=3", "train.gradient_accumulation_steps=3")
    scored, spec, runtime = scored_by(teacher, episodes, *strict)
    done = update(student, state_of(student), episodes, scored, spec, runtime, teacher=teacher)
    assert [row["trajectories_in_step"] for row in done.rows] == [4]
    assert done.rows[0]["selected_positions"] == 16
    assert done.state.counters.task_cursor == 3
