import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.serializers import Serializer

from core.artifacts.record import ArtifactRef
from core.errors import OpdError, StoreError
from tasks.serializer import StrictJSON

REF = ArtifactRef(kind="rollouts", name="cycle-003", key="0123456789abcdef", digest="a" * 64)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text().filter(lambda k: not k.startswith("$")), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_a_reference_is_written_as_its_fields():
    assert json.loads(StrictJSON().dumps(REF)) == {
        "$artifact": {
            "kind": "rollouts",
            "name": "cycle-003",
            "key": "0123456789abcdef",
            "digest": "a" * 64,
        }
    }


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value):
    serializer = StrictJSON()
    assert serializer.loads(serializer.dumps(value)) == value


def test_references_come_back_at_any_depth():
    value = {"students": [REF, None], "best": REF}
    serializer = StrictJSON()
    assert serializer.loads(serializer.dumps(value)) == value


def test_equal_values_give_equal_bytes():
    serializer = StrictJSON()
    assert serializer.dumps({"b": 1, "a": REF}) == serializer.dumps({"a": REF, "b": 1})


def test_a_failure_is_kept_as_text():
    serializer = StrictJSON()
    back = serializer.loads(serializer.dumps(KeyError("gone")))
    assert isinstance(back, OpdError)
    assert back.message == "KeyError: 'gone'"


def test_prefect_finds_it_by_its_type():
    assert isinstance(Serializer(type="opd-json"), StrictJSON)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ((1, 2), "a tuple"),
        ({1, 2}, "a set"),
        (b"x", "a bytes"),
        (object(), "a object"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ({1: 2}, "the key 1"),
        ({"$artifact": 1}, r"the key '\$artifact'"),
        (json, "a module"),
    ],
)
def test_what_is_not_plain_is_refused(value, what):
    with pytest.raises(StoreError, match=f"holds {what}, which strict JSON cannot keep"):
        StrictJSON().dumps([value])


def test_a_class_named_in_a_record_is_not_imported():
    blob = json.dumps({"__class__": "antigravity.Nothing", "data": {}}).encode()
    assert StrictJSON().loads(blob) == {"__class__": "antigravity.Nothing", "data": {}}
    assert "antigravity" not in sys.modules


def test_a_broken_reference_is_refused():
    with pytest.raises(ValueError, match="digest"):
        StrictJSON().loads(b'{"$artifact": {"kind": "x"}}')
