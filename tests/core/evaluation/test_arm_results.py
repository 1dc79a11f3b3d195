import pytest

from core.environments.registry import make_environment
from core.evaluation.arm_results import RECOVERY, cost, task_rows
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.oracle import oracle_trajectory


@pytest.fixture
def oracle_episodes():
    """Two solved calculator tasks."""
    world = make_environment("calculator")
    tasks = [world.generate_task(n, seed=7, difficulty="easy", split="test") for n in range(2)]
    return [oracle_trajectory(world, task, ToyTokenizer(), max_turns=4) for task in tasks]


def test_a_row_per_episode_says_what_a_comparison_needs(oracle_episodes):
    rows = task_rows(oracle_episodes, "test")
    assert [row["task_id"] for row in rows] == [one.task_id for one in oracle_episodes]
    assert all(row["success"] and row["split"] == "test" for row in rows)
    assert all(row["turns"] >= 1 and row["generated_tokens"] > 0 for row in rows)
    assert set(RECOVERY) <= set(rows[0])
    assert not any(row["had_tool_error"] for row in rows)


def test_repeated_episodes_of_a_task_are_numbered(oracle_episodes):
    rows = task_rows([oracle_episodes[0]] * 2 + [oracle_episodes[1]], "eval")
    assert [row["sample"] for row in rows] == [0, 1, 0]


def test_a_cost_is_a_sum_of_counts():
    found = cost(
        [{"selected_positions": 3}, {"selected_positions": 4}],
        [{"generated_tokens": 10, "rollouts": 2}, {"generated_tokens": 5, "rollouts": 2}],
        None,
    )
    assert found == {
        "optimizer_steps": 2,
        "selected_tokens": 7,
        "generated_tokens": 15,
        "episodes": 4,
        "budget": None,
    }
