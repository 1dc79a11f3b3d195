import pytest
import torch

from core.recipe.dataset_spec import WindowSpec
from core.teacher.window import pick, window

LAYOUT = [("system", 3), ("user", 4), ("assistant_tool_call", 2), ("tool_result", 3)]
TOKEN_MEAN = "loss.aggregation=token-mean"
CPU = torch.device("cpu")


@pytest.fixture
def dataset(small_toy, write_episode, scored_by):
    """Return f(mode): three episodes and their targets."""

    def make(mode="bucketed_topk_tail"):
        episodes = [write_episode(LAYOUT, n, trajectory_id=f"t{n}") for n in range(3)]
        return episodes, scored_by(small_toy(2), episodes, f"loss.mode={mode}", TOKEN_MEAN)[0]

    return make


@pytest.mark.parametrize(
    ("first", "episodes", "expected"),
    [(0, 2, [0, 1]), (2, 2, [2, 0]), (4, 3, [1, 2, 0]), (0, 4, [0, 1, 2, 0])],
)
def test_a_window_starts_over_at_the_end_of_the_set(dataset, first, episodes, expected):
    rows, scored = dataset()
    chosen, targets = window(rows, scored, WindowSpec(first=first, episodes=episodes))
    names = [f"t{n}" for n in expected]
    assert [row.trajectory_id for row in chosen] == names
    assert [one.trajectory_id for one in targets.selected] == names


@pytest.mark.parametrize("mode", ["bucketed_topk_tail", "exact_full_vocab", "verl_pg_k1"])
def test_what_the_teacher_said_moves_with_its_episode(dataset, small_toy, mode):
    _, scored = dataset(mode)
    project = small_toy(2).project
    ours = pick(scored, [2, 0]).gather([0, 1], CPU, project)
    theirs = scored.gather([2, 0], CPU, project)
    for name, tensor in vars(theirs).items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(getattr(ours, name), tensor)


def test_the_branches_of_an_episode_stay_together(dataset):
    rows, scored = dataset()
    branch = rows[0].model_copy(update={"branch_index": 0, "branches": 2})
    chosen, _ = window([branch, *rows[1:]], scored, WindowSpec(first=0, episodes=1))
    assert [row.trajectory_id for row in chosen] == ["t0", "t1"]
