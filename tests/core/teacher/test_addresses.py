import hashlib
from array import array
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.teacher.addresses import Scope, addresses

SCOPE = Scope("t", "k", "bucketed_topk_tail", 2, 1.0, 335, "float32", "cpu", 1, "2")
TOKENS = st.lists(st.integers(0, 1 << 20), min_size=3, max_size=30)


def test_an_address_can_be_computed_by_hand():
    text = b"salt\n" + array("q", [5, 6]).tobytes()
    assert addresses("salt", [5, 6, 7], [1], None) == [hashlib.sha256(text).digest()[:16]]
    sampled = hashlib.sha256(text + b"target" + array("q", [7]).tobytes()).digest()[:16]
    assert addresses("salt", [5, 6, 7], [1], [7]) == [sampled]


@given(tokens=TOKENS, data=st.data())
def test_the_tokens_up_to_a_position_and_nothing_else_name_it(tokens, data):
    places = st.sets(st.integers(0, len(tokens) - 1), min_size=1).map(sorted)
    positions = data.draw(places)
    found = addresses("s", tokens, positions, None)
    assert len(set(found)) == len(positions)
    for position, own in zip(positions, found, strict=True):
        assert addresses("s", tokens[: position + 1], [position], None) == [own]
        changed = [*tokens[:position], tokens[position] + 1]
        assert addresses("s", changed, [position], None) != [own]
    assert not set(found) & set(addresses("other", tokens, positions, None))


@pytest.mark.parametrize("name", [field.name for field in fields(Scope)])
def test_every_field_is_part_of_a_scope(name):
    value = getattr(SCOPE, name)
    other = value + 1 if isinstance(value, int | float) else f"{value}x"
    assert replace(SCOPE, **{name: other}).digest != SCOPE.digest
