import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import StoreError
from core.recipe.training_specs import BudgetSpec
from core.teacher.cut import first_positions
from core.training.budget import BUDGET, Meter, Spent, read_spent, write_spent
from core.training.stopping import StopReason
from core.training.update import update

SELECTED = BudgetSpec(axis="selected_training_tokens", limit=10)
GENERATED = BudgetSpec(axis="generated_tokens", limit=10)
SECONDS = BudgetSpec(axis="wall_time", limit=10.0)
PARTS = [("system", 3), ("user", 1), ("assistant_tool_call", 2), ("tool_result", 3),
         ("assistant_final", 2)]  # fmt: skip
"""Four sampled tokens, at 4, 5, 9 and 10: predicted at 3, 4, 8 and 9."""


@pytest.fixture
def episodes(write_episode):
    return [write_episode(PARTS, n, trajectory_id=f"t{n}") for n in range(3)]


def test_selected_positions_are_spent_to_the_last_one(episodes):
    meter = Meter(SELECTED)
    assert meter.admit(episodes, [[3, 4, 8], [3, 4, 8, 9], [3, 4, 8, 9]]) == [3, 4, 3]
    expected = Spent(axis="selected_training_tokens", target=10, actual=10,
                     stopped=StopReason.SELECTED_TRAINING_TOKENS)  # fmt: skip
    assert meter.reading() == expected


def test_sampled_tokens_beyond_the_limit_are_not_trained_on_and_are_told(episodes):
    """Ten of twelve: of the third episode, what was sampled at 4 and 5."""
    meter = Meter(GENERATED)
    assert meter.admit(episodes, [[3, 4, 8, 9], [9], [3, 8, 9]]) == [4, 1, 1]
    found = meter.reading()
    assert (found.actual, found.overshoot) == (10, 2)
    assert found.stopped is StopReason.GENERATED_TOKENS


def test_seconds_cut_nothing_and_count_what_was_spent_elsewhere(episodes):
    before = Spent(axis="wall_time", target=10.0, actual=6.0)
    meter = Meter(SECONDS, before, seconds=5.0, started=time.monotonic())
    assert meter.admit(episodes, [[3], [], [9]]) == [1, 0, 1]
    found = meter.reading()
    assert 11.0 <= found.actual < 12.0
    assert found.overshoot == pytest.approx(found.actual - 10.0)
    assert found.stopped is StopReason.WALL_TIME


@given(st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=6), st.integers(1, 40))
def test_no_split_into_cycles_changes_what_is_spent(cycles, limit):
    """The limit is met exactly or not reached; an interrupted run counts on where it was."""
    spec = BudgetSpec(axis="selected_training_tokens", limit=limit)
    spent = None
    kept = []
    for cycle in cycles:
        meter = Meter(spec, spent)
        kept += meter.admit([], [range(count) for count in cycle])
        spent = meter.reading()
    wanted = [count for cycle in cycles for count in cycle]
    assert sum(kept) == min(limit, sum(wanted))
    assert kept == Meter(spec).admit([], [range(count) for count in wanted])
    if spent is not None:
        assert (spent.actual, spent.overshoot) == (sum(kept), 0)
        assert (spent.stopped is not None) == (sum(wanted) >= limit)


def test_what_was_spent_is_read_back(tmp_path):
    meter = Meter(SELECTED, used=4)
    document = write_spent(tmp_path, meter.reading())
    assert document["budget"] == json.loads((tmp_path / BUDGET).read_text())
    assert read_spent(tmp_path) == meter.reading()
    assert Meter(SELECTED, read_spent(tmp_path)).left == 6


def test_a_student_without_a_budget_has_none(tmp_path):
    assert read_spent(tmp_path) is None


@pytest.mark.parametrize("text", ["{", '{"axis": "patience", "target": 3}', "[]"])
def test_a_damaged_budget_is_refused(tmp_path, text):
    (tmp_path / BUDGET).write_text(text)
    with pytest.raises(StoreError, match="holds no budget"):
        read_spent(tmp_path)


# ---------------------------------------------------------------- end to end


def test_a_budget_cuts_the_step_and_the_objective_is_that_of_what_is_left(
    small_toy, scored_by, write_episode, state_of
):
    """Design 9.2: the selection is cut before the step, and overshoots by nothing."""
    student, teacher = small_toy(1), small_toy(2)
    episodes = [write_episode(PARTS, n, trajectory_id=f"t{n}") for n in range(3)]
    scored, spec, runtime = scored_by(teacher, episodes)
    before = state_of(student)
    meter = Meter(BudgetSpec(axis="selected_training_tokens", limit=6))
    done = update(student, before, episodes, scored, spec, runtime, teacher=teacher, meter=meter)
    cut = first_positions(scored, [4, 2, 0])
    alone = update(student, before, episodes, cut, spec, runtime, teacher=teacher)
    assert done.state.digest() == alone.state.digest()
    assert done.rows == alone.rows
    assert done.rows[0]["selected_positions"] == done.state.counters.selected_tokens_spent == 6
    assert meter.is_spent


def test_no_step_begins_once_the_seconds_are_over(small_toy, scored_by, write_episode, state_of):
    student, teacher = small_toy(1), small_toy(2)
    episodes = [write_episode(PARTS, n, trajectory_id=f"t{n}") for n in range(3)]
    several = ("train.gradient_accumulation_steps=1", "train.opd_freshness=replay")
    scored, spec, runtime = scored_by(teacher, episodes, *several)
    meter = Meter(BudgetSpec(axis="wall_time", limit=1.0), seconds=2.0)
    inputs = (student, state_of(student), episodes, scored, spec, runtime)
    assert len(update(*inputs, teacher=teacher, meter=meter).rows) == 1
    assert len(update(*inputs, teacher=teacher).rows) == 3
