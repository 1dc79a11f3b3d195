"""C53: self-distillation has collapsed after hundreds of good steps, and lost pass@k before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import StoreError
from core.recipe.training_specs import StopSpec
from core.training.collapse import WATCH, StopReason, Watch, read_watch, watch, write_watch
from core.trajectory.trajectory import Trajectory


def episodes(entropy, solved):
    """Return one episode of two tokens per verdict."""
    return [
        Trajectory(
            trajectory_id=f"t{n}",
            task_id=f"t{n}",
            environment="calculator",
            token_ids=[1, 2, 3],
            spans=[
                {"span_type": "user", "start": 0, "end": 1, "segment_key": "user"},
                {"span_type": "assistant_final", "start": 1, "end": 3, "segment_key": "a"},
            ],
            logprobs=[-2 * entropy, 0.0],
            tokenizer_digest="d",
            verification={
                "solved": own,
                "reward": float(own),
                "failure_category": "solved" if own else "wrong_answer",
            },
            termination_reason="final_answer",
        )
        for n, own in enumerate(solved)
    ]


def seen(cycles, spec):
    """Return the watch after cycles of (entropy, verdicts)."""
    state = Watch()
    for entropy, solved in cycles:
        state = watch(state, episodes(entropy, solved), spec)
    return state


ENTROPY = StopSpec(min_entropy=0.3, min_success=None, after_cycles=2)
SUCCESS = StopSpec(min_entropy=None, min_success=0.5, after_cycles=2)
FINE, MUTE, FAILING = (0.9, [True, True]), (0.1, [True, True]), (0.9, [True, False, False])


def test_a_student_that_says_always_the_same_ends_the_run():
    state = seen([FINE, MUTE, MUTE], ENTROPY)
    assert state.stopped is StopReason.STUDENT_ENTROPY
    assert (state.cycles_below_entropy, state.cycles_below_success) == (2, 0)
    assert state.sampled_entropy == pytest.approx(0.1)


def test_a_student_that_solves_nothing_ends_the_run():
    state = seen([FAILING, FAILING], SUCCESS)
    assert state.stopped is StopReason.SUCCESS_RATE
    assert state.success_rate == pytest.approx(1 / 3)


@pytest.mark.parametrize("cycles", [[MUTE], [MUTE, FINE, MUTE], [FAILING, FAILING], []])
def test_one_good_cycle_starts_the_count_again_and_the_other_bound_is_not_read(cycles):
    assert seen(cycles, ENTROPY).stopped is None


def test_a_value_at_the_bound_is_not_below_it():
    assert seen([(0.9, [True, False])] * 5, SUCCESS).cycles_below_success == 0


def test_a_cycle_without_a_sampled_token_is_not_below_the_bound():
    state = watch(Watch(cycles_below_entropy=1), [], ENTROPY)
    assert (state.sampled_entropy, state.cycles_below_entropy, state.stopped) == (None, 0, None)


def test_an_episode_in_branches_counts_once_in_the_success_of_a_cycle():
    failed, solved = episodes(0.9, [False, True])
    place = {"parent_id": failed.trajectory_id, "branches": 3}
    rows = [failed.model_copy(update={**place, "branch_index": index}) for index in range(3)]
    state = watch(Watch(), [*rows, solved], SUCCESS)
    assert state.success_rate == 0.5
    assert state.cycles_below_success == 0


@given(st.lists(st.sampled_from([FINE, MUTE, FAILING]), max_size=9), st.integers(0, 9))
def test_a_run_that_was_interrupted_stops_where_another_does(tmp_path_factory, cycles, cut):
    """The count is part of the artifact, so it is read back and goes on."""
    directory = tmp_path_factory.mktemp("student")
    spec = StopSpec(min_entropy=0.3, min_success=0.5, after_cycles=3)
    write_watch(directory, seen(cycles[:cut], spec))
    state = read_watch(directory)
    for entropy, solved in cycles[cut:]:
        state = watch(state, episodes(entropy, solved), spec)
    assert state == seen(cycles, spec)


def test_a_student_without_a_watch_has_seen_nothing(tmp_path):
    assert read_watch(tmp_path) == Watch()


@pytest.mark.parametrize("text", ["{", '{"stopped": "boredom"}', '{"cycles": 3}'])
def test_a_damaged_watch_is_refused(tmp_path, text):
    (tmp_path / WATCH).write_text(text)
    with pytest.raises(StoreError, match="holds no watch"):
        read_watch(tmp_path)
