"""The order in which training prompts are used: one epoch after another, each a permutation."""

import random
from array import array
from collections.abc import Iterator

from core.recipe.order_spec import TaskOrderSpec
from core.seeding import derive_seed


def prompt_order(count: int, order: TaskOrderSpec, cursor: int = 0) -> Iterator[int]:
    """Yield task indices without end.

    Epoch *e* holds places ``e·count`` to ``(e+1)·count - 1``. Shuffled, its order is that of
    ``random.Random(derive_seed(seed, "prompts", e)).shuffle(range(count))``; otherwise the files'.
    So a place names its task whatever was drawn before, and every epoch holds every task once.

    Args:
        count: Number of tasks, at least 1.
        order: Whether and how to shuffle.
        cursor: First place, counted over all epochs.
    """
    epoch, start = divmod(cursor, count)
    while True:
        yield from _epoch(count, order, epoch)[start:]
        epoch, start = epoch + 1, 0


def _epoch(count: int, order: TaskOrderSpec, epoch: int) -> "array[int]":
    indices = array("Q", range(count))
    if order.seed is not None:
        random.Random(derive_seed(order.seed, "prompts", epoch)).shuffle(indices)
    return indices
