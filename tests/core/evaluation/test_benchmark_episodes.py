import pytest

from core.environments.registry import make_environment
from core.errors import TrajectoryError
from core.evaluation.benchmark_episodes import chosen_tasks, shown_episodes
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.oracle import oracle_trajectory
from core.trajectory.io import write_trajectories


def rows(**solved):
    """Return rows of three tasks, by arm the numbers of those that it solves."""
    return [
        {"arm": arm, "seed": 1, "sample": 0, "task_id": f"t{task}", "success": task in own}
        for arm, own in solved.items()
        for task in range(3)
    ]


def test_tasks_on_which_arms_disagree_come_first():
    # t0: all solve it; t1: none; t2: half.
    found = rows(a={0, 2}, b={0}, c={0, 2}, d={0})
    assert chosen_tasks(found, 1, 1) == ["t2"]
    assert chosen_tasks(found, 1, 2) == ["t0", "t2"]
    assert chosen_tasks(found, 2) == []


@pytest.fixture
def evaluation(tmp_path):
    """Two solved tasks: the file of their episodes, and their rows."""
    world = make_environment("calculator")
    tasks = [world.generate_task(n, seed=7, difficulty="easy", split="test") for n in range(2)]
    played = [oracle_trajectory(world, task, ToyTokenizer(), max_turns=4) for task in tasks]
    write_trajectories(tmp_path / "eval_trajectories.jsonl", played)
    found = [
        {
            **{"arm": "a", "seed": 1, "sample": 0, "success": True},
            **{"task_id": one.task_id, "trajectory_id": one.trajectory_id},
        }
        for one in played
    ]
    return tmp_path / "eval_trajectories.jsonl", found, played


def test_an_episode_is_shown_with_its_spans_and_verdict(evaluation):
    path, found, played = evaluation
    first, second = shown_episodes({"a": path}, found, 1)
    assert (first["arm"], first["task_id"], first["solved"]) == ("a", played[0].task_id, True)
    assert [span["text"] for span in second["spans"]] == [span.text for span in played[1].spans]
    assert [span["model"] for span in second["spans"]] == [one.is_model for one in played[1].spans]
    assert len(list(shown_episodes({"a": path}, found, 1, count=1))) == 1


def test_an_altered_episode_is_refused(evaluation):
    path, found, _ = evaluation
    path.write_text(path.read_text().replace('"schema_version":2', '"schema_version":99'))
    with pytest.raises(TrajectoryError, match="row 1"):
        list(shown_episodes({"a": path}, found, 1))
