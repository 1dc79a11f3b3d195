import pytest

from core.errors import PromptFileError
from core.prompts.bounds import prompt_length
from core.prompts.reading import PromptReader
from core.prompts.row import PromptRow


def question(number, text="What is {}+1?"):
    return {"question": text.format(number), "answer": f"so #### {number + 1}"}


QUESTIONS = [question(n) for n in range(7)]


@pytest.fixture
def read(toy_codec):
    """Return f(spec, paths): tasks and counts."""

    def run(spec, *paths, batch_size=2, train=()):
        reader = PromptReader(spec, toy_codec, batch_size, train)
        return list(reader.tasks(paths)), reader.counts

    return run


def test_files_are_one_split_in_the_order_they_are_named(read, gsm8k, jsonl, parquet):
    tasks, counts = read(gsm8k(), jsonl(QUESTIONS[:3]), parquet(QUESTIONS[3:]))
    assert [task.prompt for task in tasks] == [row["question"] for row in QUESTIONS]
    assert [task.answer for task in tasks] == [str(n + 1) for n in range(7)]
    assert tasks[3].task_id == "prompt-train-1-1"
    assert tasks[3].metadata == {"file": 1, "row": 1, "system": ""}
    assert (counts.rows, counts.tasks, counts.repeated) == (7, 7, 0)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_tasks_do_not_depend_on_format_or_batch_size(read, gsm8k, jsonl, parquet, batch_size):
    expected, _ = read(gsm8k(), jsonl(QUESTIONS))
    assert read(gsm8k(), parquet(QUESTIONS), batch_size=batch_size)[0] == expected


def test_a_longer_prompt_is_refused_shortened_or_left_out_and_counted(
    read, gsm8k, jsonl, toy_codec
):
    long = question(1, "Well, what is {}+1, after all?")
    path = jsonl([QUESTIONS[0], long, QUESTIONS[2]])
    limit = prompt_length(PromptRow("", 1, "", QUESTIONS[0]["question"]), toy_codec)
    with pytest.raises(PromptFileError, match=rf"row 2: .* more than .* \({limit}\)"):
        read(gsm8k(max_prompt_length=limit), path)
    tasks, counts = read(gsm8k(max_prompt_length=limit, truncation="left"), path)
    assert (len(tasks), counts.truncated, counts.longest_prompt) == (3, 1, limit)
    assert long["question"].endswith(tasks[1].prompt)
    tasks, counts = read(gsm8k(max_prompt_length=limit, filter_overlong_prompts=True), path)
    assert [task.metadata["row"] for task in tasks] == [1, 3]
    assert (counts.rows, counts.tasks, counts.dropped_overlong) == (3, 2, 1)


def test_a_data_source_is_read_from_either_format(read, gsm8k, jsonl, parquet):
    rows = [{**row, "data_source": "gsm8k"} for row in QUESTIONS]
    expected, _ = read(gsm8k(), jsonl(rows))
    assert expected[0].metadata["data_source"] == "gsm8k"
    assert read(gsm8k(), parquet(rows))[0] == expected


def test_a_repeated_prompt_is_counted(read, gsm8k, jsonl):
    tasks, counts = read(gsm8k(), jsonl([QUESTIONS[0], QUESTIONS[0], QUESTIONS[1]]))
    assert (len(tasks), counts.repeated) == (3, 1)
    assert len({task.task_id for task in tasks}) == 3


def test_a_held_out_prompt_of_the_train_split_is_refused_or_left_out_and_counted(
    read, gsm8k, jsonl
):
    train, _ = read(gsm8k(), jsonl(QUESTIONS[:4], "train.jsonl"))
    path = jsonl(QUESTIONS[3:], "val.jsonl")
    with pytest.raises(PromptFileError, match="row 1: the train split has this prompt too"):
        read(gsm8k(split="eval", overlap="error"), path, train=train)
    tasks, counts = read(gsm8k(split="eval", overlap="drop"), path, train=train)
    assert (counts.rows, counts.tasks, counts.dropped_overlap) == (4, 3, 1)
    assert {task.prompt for task in tasks}.isdisjoint(task.prompt for task in train)


def test_a_demonstration_that_a_student_could_not_finish_is_refused(read, gsm8k, jsonl):
    given = {"demonstration_key": "answer", "max_response_length": 10}
    tasks, _ = read(gsm8k(**given), jsonl([QUESTIONS[0]]))
    assert tasks[0].metadata["demonstration"] == "so #### 1"
    with pytest.raises(PromptFileError, match="row 2: answer has"):
        read(gsm8k(**given), jsonl([QUESTIONS[0], {"question": "q", "answer": "so then, #### 1"}]))


def test_no_row_at_all_is_refused(read, gsm8k, jsonl):
    with pytest.raises(PromptFileError, match="no row is left of 0"):
        read(gsm8k(), jsonl([]))


def test_rows_are_read_as_they_are_asked_for(gsm8k, jsonl, toy_codec):
    """Nothing after a batch is read or kept before it is wanted."""
    reader = PromptReader(gsm8k(), toy_codec, 2)
    tasks = reader.tasks([jsonl([*QUESTIONS, {"question": ""}])])
    assert [next(tasks).metadata["row"] for _ in range(3)] == [1, 2, 3]
    assert reader.counts.rows == 3
    with pytest.raises(PromptFileError, match="row 8"):
        list(tasks)
