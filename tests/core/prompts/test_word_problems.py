from pathlib import Path

from core.prompts.word_problems import problems, write_word_problems

SHIPPED = Path(__file__).resolve().parents[3] / "recipes" / "data"


def test_the_shipped_files_are_what_the_command_writes(tmp_path):
    for path in write_word_problems(tmp_path):
        assert path.read_bytes() == (SHIPPED / path.name).read_bytes()


def test_no_problem_occurs_twice_and_every_answer_is_right():
    rows = list(problems())
    assert len({row["question"] for row in rows}) == len(rows)
    for row in rows:
        sum_, _, answer = row["answer"].partition("\n")[0].partition("=")
        assert str(eval(sum_, {})) == answer == row["answer"].rpartition("#### ")[2]
