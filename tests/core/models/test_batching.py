import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.models.batching import needed_tokens, pad_batch, plan_batches, plan_physical
from core.recipe.runtime import Runtime

LENGTHS = st.lists(st.integers(1, 40), max_size=30)


def test_short_sequences_share_a_batch_until_the_padded_area_is_full():
    lengths = [8, 2, 10, 5, 2, 9]
    assert plan_batches(lengths, 4, 18) == ((1, 4, 3), (0, 5), (2,))


def test_the_given_order_is_kept_on_request():
    lengths = [8, 2, 10, 5, 2, 9]
    assert plan_batches(lengths, 4, sort_by_length=False) == ((0, 1, 2, 3), (4, 5))


def test_equal_lengths_keep_their_order():
    lengths = [8, 3, 8, 5, 3, 9]
    assert plan_batches(lengths, 2) == ((1, 4), (3, 0), (2, 5))
    assert plan_batches(lengths, 4) == ((1, 4, 3, 0), (2, 5))


def test_padding_goes_right_and_positions_are_listed_row_by_row():
    batch = pad_batch([[11, 12, 13, 14], [21, 22]], [[0, 2], [1]], pad_id=0)
    assert batch.token_ids_BT.tolist() == [[11, 12, 13, 14], [21, 22, 0, 0]]
    assert batch.lengths_B.tolist() == [4, 2]
    assert batch.rows_N.tolist() == [0, 0, 1]
    assert batch.positions_N.tolist() == [0, 2, 1]
    assert batch.offsets == (0, 2, 3)


def test_gathering_reads_the_selected_positions():
    batch = pad_batch([[11, 12, 13, 14], [21, 22]], [[0, 2], [1]], pad_id=0)
    hidden_BTH = torch.arange(8.0).reshape(2, 4, 1)
    assert batch.gather(hidden_BTH).flatten().tolist() == [0.0, 2.0, 5.0]


def test_a_row_without_selection_owns_nothing():
    batch = pad_batch([[1], [2, 3]], [[], [0]], pad_id=0)
    assert batch.offsets == (0, 0, 1)


def test_tokens_after_the_last_selected_position_are_not_needed():
    assert needed_tokens([5, 6, 7, 8], [0, 2]) == [5, 6, 7]
    assert needed_tokens([5, 6, 7, 8], []) == [5]


def test_the_runtime_sets_the_limits():
    lengths = [8, 2, 10, 5, 2, 9]
    limited = Runtime(trajectory_batch_size=4, max_update_padded_tokens=18)
    assert plan_physical(lengths, limited) == ((1, 4, 3), (0, 5), (2,))
    unsorted = Runtime(trajectory_batch_size=4, length_bucketing=False)
    assert plan_physical(lengths, unsorted) == ((0, 1, 2, 3), (4, 5))
    assert plan_physical(lengths, Runtime(trajectory_batch_size="auto")) == ((1, 4, 3, 0, 5, 2),)


@given(LENGTHS, st.integers(1, 8), st.none() | st.integers(1, 120), st.booleans())
def test_each_sequence_is_in_exactly_one_batch(lengths, batch_size, limit, sort):
    batches = plan_batches(lengths, batch_size, limit, sort_by_length=sort)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 8), st.integers(1, 120), st.booleans())
def test_no_batch_exceeds_its_limits(lengths, batch_size, limit, sort):
    for batch in plan_batches(lengths, batch_size, limit, sort_by_length=sort):
        area = len(batch) * max(lengths[index] for index in batch)
        assert len(batch) <= batch_size
        assert area <= limit or len(batch) == 1


def test_an_empty_batch_size_is_refused():
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        plan_batches([1], 0)


@pytest.mark.parametrize(
    ("sequences", "selected", "message"),
    [
        ([], [], "0 sequences"),
        ([[1]], [[0], [0]], "1 sequences but 2 selections"),
        ([[]], [[]], "sequence 0 is empty"),
        ([[1, 2]], [[2]], "position is outside"),
    ],
)
def test_ragged_input_that_does_not_fit_is_refused(sequences, selected, message):
    with pytest.raises(ValueError, match=message):
        pad_batch(sequences, selected, pad_id=0)


def test_rows_have_the_width_that_is_asked_for():
    batch = pad_batch([[1, 2], [3]], [[1], []], 0, width=4)
    assert batch.token_ids_BT.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]
    with pytest.raises(ValueError, match="2 tokens; rows have 1"):
        pad_batch([[1, 2]], [[0]], 0, width=1)
