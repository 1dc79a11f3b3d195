import pytest

from core.environments.base import Task, make_splits
from core.environments.registry import make_environment
from core.environments.task_file import (
    TaskFileError,
    count_tasks,
    pick_tasks,
    read_tasks,
    write_tasks,
)


def test_every_task_returns_as_it_was(tmp_path):
    splits = make_splits(
        make_environment("calculator"), {"train": 5, "eval": 3}, seed=7, difficulty="hard"
    )
    for split, tasks in splits.items():
        write_tasks(tmp_path / f"{split}.jsonl", tasks)
        assert read_tasks(tmp_path / f"{split}.jsonl") == tasks


def test_separators_inside_a_prompt_do_not_break_rows(tmp_path):
    task = Task("t", "one\ntwo\x85", "é", "easy", "train", {"k": [1, 2.5]})
    write_tasks(tmp_path / "t.jsonl", [task, task])
    assert read_tasks(tmp_path / "t.jsonl") == [task, task]


def test_a_row_that_is_no_task_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    write_tasks(path, [Task("t", "p", "a", "easy", "train")])
    path.write_text(path.read_text() + '{"task_id": "x"}\n')
    with pytest.raises(TaskFileError, match=r"t\.jsonl row 2 is no task"):
        read_tasks(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TaskFileError, match=r"absent\.jsonl cannot be read"):
        read_tasks(tmp_path / "absent.jsonl")


def test_tasks_are_picked_by_place_without_reading_the_others(tmp_path):
    tasks = [Task(f"t{n}", "p\u2028", "a", "easy", "train") for n in range(5)]
    path = tmp_path / "t.jsonl"
    assert write_tasks(path, iter(tasks)) == count_tasks(path) == 5
    assert pick_tasks(path, [4, 0, 4]) == [tasks[4], tasks[0], tasks[4]]
    path.write_text(path.read_text(encoding="utf-8").replace('"t1"', "broken"), encoding="utf-8")
    assert pick_tasks(path, [2]) == [tasks[2]]
    with pytest.raises(TaskFileError, match="row 2 is no task"):
        pick_tasks(path, [1])
    with pytest.raises(TaskFileError, match="has no row 6"):
        pick_tasks(path, [5])
