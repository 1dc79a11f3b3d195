import functools
import hashlib
import json
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from core.artifacts.key import canonical_json, compute_key, encode, key_of_payload
from core.artifacts.record import ArtifactRef
from core.errors import KeyEncodingError

DIGEST = hashlib.sha256(b"parent").hexdigest()


class Direction(StrEnum):
    FORWARD = "forward_kl"


class Level(Enum):
    HIGH = 3


class Inner(BaseModel):
    top_k: int = 4
    temperature: float = 1.0


class Spec(BaseModel):
    steps: int
    rate: float = 1
    inner: Inner = Field(default_factory=Inner)
    names: list[str] = Field(default_factory=list)
    anything: Any = None


class Grown(Spec):
    added_later: str = "off"


class Exact(BaseModel):
    kind: Literal["exact"] = "exact"


class Bucketed(BaseModel):
    kind: Literal["bucketed"] = "bucketed"


class Untagged(BaseModel):
    size: int = 1


class Union(BaseModel):
    tagged: Exact | Bucketed = Exact()
    loose: Inner | Untagged | None = None


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False).filter(np.isfinite),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


# --- golden -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ((1, 2.5), "[1,2.5]"),
        (1e-5, "1e-05"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-0.0, "-0.0"),
        (2**70, "1180591620717411303424"),
        (Direction.FORWARD, '"forward_kl"'),
        (Level.HIGH, "3"),
        ({Direction.FORWARD: 1}, '{"forward_kl":1}'),
        ("é\ud800", '"\\u00e9\\ud800"'),
        (np.float64(0.5), "0.5"),
        (Spec(steps=3), '{"steps":3}'),
        (Spec(steps=3, inner=Inner(top_k=8)), '{"inner":{"top_k":8},"steps":3}'),
    ],
)
def test_canonical_text_of_a_value(value, text):
    assert canonical_json(value) == text


def test_a_key_is_the_hash_of_the_payload_written_by_hand():
    # printf '<text>' | sha256sum | cut -c1-16
    text = (
        '{"parents":{"student":"' + DIGEST + '"},'
        '"spec":{"inner":{"top_k":8},"rate":0.5,"steps":3},"task":"update","version":"2"}'
    )
    spec = Spec(steps=3, rate=0.5, inner=Inner(top_k=8))
    found = compute_key("update", "2", spec, {"student": DIGEST})
    assert found.key == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert len(found.key) == 16
    assert found.payload == json.loads(text)


def test_fingerprints_do_not_drift():
    # A changed value here means that every store forks: bump task versions on purpose instead.
    # printf '{"parents":{},"spec":{},"task":"sample","version":"1"}' | sha256sum | cut -c1-16
    assert compute_key("sample", "1", {}, {}).key == "51689522f335c197"
    assert compute_key("sample", "1", Spec(steps=2, names=["a"]), {}).key == "58e61faf77670400"


# --- properties -------------------------------------------------------------------------------


@given(plain)
def test_the_text_is_what_the_standard_library_reads_back(value):
    text = canonical_json(value)
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


@given(st.dictionaries(st.text(), plain, min_size=1), st.randoms(use_true_random=False))
def test_the_order_of_a_mapping_does_not_change_the_key(spec, random):
    items = list(spec.items())
    random.shuffle(items)
    assert compute_key("t", "1", dict(items), {}).key == compute_key("t", "1", spec, {}).key


@given(
    st.integers(),
    st.none() | st.integers(2, 9),
    st.none() | st.floats(0.1, 2.0),
    st.none() | st.lists(st.text(), min_size=1),
)
def test_spelling_out_a_default_does_not_change_the_key(steps, top_k, rate, names):
    given_fields = {"rate": rate, "names": names}
    short = {k: v for k, v in given_fields.items() if v is not None}
    inner = Inner() if top_k is None else Inner(top_k=top_k)
    spelt = Spec(steps=steps, inner=inner, rate=rate or 1.0, names=names or [], anything=None)
    brief = Spec(steps=steps, **short, **({} if top_k is None else {"inner": {"top_k": top_k}}))
    assert compute_key("t", "1", spelt, {}).key == compute_key("t", "1", brief, {}).key


@given(st.integers(-(10**6), 10**6))
def test_an_integer_in_a_float_field_is_the_same_number(value):
    by_int = Spec.model_construct(steps=1, rate=value)  # not coerced, as defaults are not
    assert canonical_json(by_int) == canonical_json(Spec(steps=1, rate=float(value)))


def test_an_untyped_integer_and_float_differ():
    # They print differently, so a task may treat them differently: a false miss is harmless.
    assert canonical_json({"x": 1}) == '{"x":1}'
    assert canonical_json({"x": 1.0}) == '{"x":1.0}'
    assert canonical_json(Spec(steps=1, anything=1)) != canonical_json(Spec(steps=1, anything=1.0))


def test_true_is_not_the_default_one():
    assert canonical_json(Spec(steps=1, rate=1.0)) == '{"steps":1}'
    assert canonical_json(Spec(steps=1, anything=True)) == '{"anything":true,"steps":1}'


def test_a_schema_may_grow_by_a_field_with_a_default():
    assert compute_key("t", "1", Grown(steps=2), {}) == compute_key("t", "1", Spec(steps=2), {})


def test_tags_keep_models_of_a_union_apart():
    assert canonical_json(Union(tagged=Bucketed())) == '{"tagged":{"kind":"bucketed"}}'
    assert canonical_json(Union(tagged=Exact())) == "{}"


def test_parents_enter_by_content_and_role_only():
    def ref(name, key, digest):
        return ArtifactRef(kind="student", name=name, key=key, digest=digest)

    one = compute_key("t", "1", {}, {"student": ref("a", "0" * 16, DIGEST)})
    assert one == compute_key("t", "1", {}, {"student": ref("b", "1" * 16, DIGEST)})
    assert one == compute_key("t", "1", {}, {"student": DIGEST})
    assert one.key != compute_key("t", "1", {}, {"teacher": DIGEST}).key
    assert one.key != compute_key("t", "1", {}, {"student": "0" * 64}).key


def test_task_and_version_are_identity():
    keys = {compute_key(task, version, {}, {}).key for task in "ab" for version in "12"}
    assert len(keys) == 4


def test_a_payload_read_back_from_a_file_has_the_same_key():
    found = compute_key("t", "1", {"x": 1e-7, "y": [0.1, 3], "z": "é"}, {"p": DIGEST})
    assert key_of_payload(json.loads(json.dumps(found.payload, indent=2))) == found.key


def test_extra_fields_of_an_open_model_are_identity():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    assert canonical_json(Open(x=1)) == '{"x":1}'


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (float("nan"), "spec.loss.x is nan"),
        (float("inf"), "spec.loss.x is inf"),
        (Path("a"), "spec.loss.x is a PosixPath"),
        (lambda: 1, "spec.loss.x is a function"),
        (functools.partial(int), "spec.loss.x is a partial"),
        (int, "spec.loss.x is a type"),
        (np.zeros(2), "spec.loss.x is a ndarray"),
        (np.float32(1), "spec.loss.x is a float32"),
        (object(), "spec.loss.x is a object"),
        (b"bytes", "spec.loss.x is a bytes"),
        ({1: 2}, "spec.loss.x has the key 1"),
        ([0, {"deep": [Path("a")]}], r"spec.loss.x\[1\].deep\[0\] is a PosixPath"),
        ({Path("a")}, r"spec.loss.x\{\} is a PosixPath"),
    ],
)
def test_what_has_no_text_is_refused_with_its_dotted_name(value, what):
    with pytest.raises(KeyEncodingError, match=f"^{what}"):
        compute_key("t", "1", {"loss": {"x": value}}, {})


def test_a_tensor_is_refused():
    """C81: equal tensors pickle differently; they enter by the digest of their artifact."""
    torch = pytest.importorskip("torch")
    with pytest.raises(KeyEncodingError, match=r"spec.x is a Tensor.*\nPublish the array"):
        compute_key("t", "1", {"x": torch.zeros(2)}, {})


def test_a_refused_field_of_a_model_is_named():
    with pytest.raises(KeyEncodingError, match=r"spec.inner.temperature is inf"):
        compute_key("t", "1", Spec(steps=1, inner=Inner(temperature=float("inf"))), {})


def test_an_untagged_model_of_a_union_is_refused():
    with pytest.raises(KeyEncodingError, match="loose holds a Untagged"):
        canonical_json(Union(loose=Untagged()))
    with pytest.raises(KeyEncodingError, match="anything holds a Inner"):
        canonical_json(Spec(steps=1, anything=Inner()))


@pytest.mark.parametrize("digest", ["", "abc", "G" * 64, "A" * 64])
def test_a_parent_without_a_content_digest_is_refused(digest):
    with pytest.raises(KeyEncodingError, match=r"parents.student is"):
        compute_key("t", "1", {}, {"student": digest})


def test_a_bare_value_is_called_value():
    with pytest.raises(KeyEncodingError, match=r"^value is a PosixPath"):
        encode(Path("a"))
