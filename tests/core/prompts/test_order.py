import random
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from core.prompts.order import prompt_order
from core.recipe.order_spec import TaskOrderSpec
from core.seeding import derive_seed


def take(count, seed, length, cursor=0):
    return list(islice(prompt_order(count, TaskOrderSpec(seed=seed), cursor), length))


def test_the_order_is_the_documented_one():
    second = list(range(5))
    random.Random(derive_seed(3, "prompts", 1)).shuffle(second)
    assert take(5, 3, 5, cursor=5) == second
    assert take(5, 3, 10) == [0, 2, 1, 4, 3, *second]


def test_the_files_own_order_repeats():
    assert take(3, None, 7, cursor=1) == [1, 2, 0, 1, 2, 0, 1]


@given(
    st.integers(1, 20),
    st.none() | st.integers(0, 9),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_a_place_names_its_task_whatever_came_before(count, seed, cursor, length):
    assert take(count, seed, length, cursor) == take(count, seed, cursor + length)[cursor:]


@given(st.integers(1, 20), st.integers(0, 9), st.integers(0, 5))
def test_every_epoch_holds_every_task_once(count, seed, epoch):
    assert sorted(take(count, seed, count, epoch * count)) == list(range(count))


def test_epochs_and_seeds_differ():
    orders = [take(20, seed, 20, epoch * 20) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9
