import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.base import FailureCategory, OracleFinal, Task, ToolCall
from core.environments.prompt_world import PromptWorld
from core.environments.registry import make_environment, names
from core.errors import InputError, ToolEnvironmentError

TASK = Task(
    "prompt-train-0-1",
    "What is 3+4?",
    "7",
    "unrated",
    "train",
    {"system": "Be brief.", "demonstration": "3+4=7\n#### 7", "hint": "It is 7.", "row": 1},
)


@pytest.fixture
def world():
    made = make_environment("prompts", answer_check="numeric", answer_marker="####")
    made.reset(TASK)
    return made


def test_it_is_reached_by_name_and_listed_nowhere(world):
    assert isinstance(world, PromptWorld)
    assert "prompts" not in names()


def test_the_prompt_is_all_there_is_to_see(world):
    assert world.reset(TASK).text == TASK.prompt
    assert world.system_prompt() == "Be brief."
    assert make_environment("prompts").system_prompt() == ""
    assert world.tool_specs() == []


@pytest.mark.parametrize(
    ("response", "category", "predicted"),
    [
        ("3+4=7\n#### 7", "solved", "7"),
        ("#### 7.0", "solved", "7.0"),
        ("#### 8", "wrong_answer", "8"),
        ("7", "malformed_answer", ""),
        ("#### seven", "malformed_answer", "seven"),
        ("", "malformed_answer", ""),
    ],
)
def test_a_response_is_judged_by_the_answer_in_it(world, response, category, predicted):
    verdict = world.verify(response)
    assert (verdict.failure_category, verdict.predicted) == (category, predicted)
    assert verdict.solved is (category == "solved")


def test_a_prompt_without_a_reference_is_not_judged(world):
    world.reset(Task("t", "p", "", "unrated", "train", {}))
    assert world.verify("#### 7").failure_category is FailureCategory.NO_REFERENCE


def test_the_block_of_a_response_starts_at_its_marker(world):
    turn = world.read_turn("3+4=7\n#### 7")
    assert (turn.kind, turn.prefix_text, turn.block_start) == ("final", "3+4=7\n", 6)
    assert world.read_turn("no marker").block_start == 0
    assert make_environment("prompts").read_turn("#### 7").block_start == 0


@given(st.text())
def test_every_response_is_an_answer_with_a_verdict(text):
    made = make_environment("prompts", answer_check="numeric", answer_marker="####")
    made.reset(TASK)
    turn = made.read_turn(text)
    assert turn.kind == "final"
    assert 0 <= turn.block_start <= turn.block_end == len(text)
    assert made.verify(text).reward in (0.0, 1.0)


def test_columns_of_the_row_are_oracle_and_hint_and_stay_out_of_trajectories(world):
    assert world.oracle_actions(TASK) == [OracleFinal("3+4=7\n#### 7")]
    assert world.privileged_context(TASK) == "It is 7."
    assert world.trajectory_metadata(TASK) == {"row": 1}
    bare = Task("t", "p", "7", "unrated", "train", {})
    assert world.privileged_context(bare) is None
    with pytest.raises(InputError, match="demonstration"):
        world.oracle_actions(bare)


def test_what_it_does_not_have_is_refused(world):
    assert world.step(ToolCall("search", {})).failure_category is FailureCategory.UNKNOWN_TOOL
    with pytest.raises(InputError, match="rows of files"):
        world.generate_task(0, seed=0, difficulty="easy", split="train")
    with pytest.raises(InputError, match="answer_check"):
        make_environment("prompts", answer_check="fuzzy")
    with pytest.raises(ToolEnvironmentError, match="no episode"):
        make_environment("prompts").verify("7")
