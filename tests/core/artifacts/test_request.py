import pytest

from core.artifacts.code import CodeDigest
from core.artifacts.key import compute_key
from core.artifacts.record import ArtifactRef, NumericClass
from core.errors import KeyEncodingError, StoreError

PARENT = ArtifactRef(kind="student", name="s", key="0" * 16, digest="1" * 64)


def test_the_identity_is_that_of_task_version_spec_and_parents(make_request):
    found = make_request(task="update", version="3", spec={"x": 1}, parents={"student": PARENT})
    assert found.identity == compute_key("update", "3", {"x": 1}, {"student": PARENT.digest})


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"kind": "other"},
        {"code": CodeDigest(digest="1", functions={})},
        {"numeric_class": NumericClass(device="cuda")},
        {"seeds": {"run": 1}},
        {"labels": {"note": "x"}},
        {"strict_code": True},
    ],
)
def test_what_is_not_identity_does_not_change_the_key(change, make_request):
    assert make_request(**change).identity.key == make_request().identity.key


def test_the_numeric_class_may_be_told_after_the_build(make_request):
    cpu = NumericClass(device="cpu", physical_rows=8)
    assert make_request(numeric_class=cpu).measured_class() == cpu
    assert make_request(numeric_class=lambda: cpu).measured_class() == cpu
    assert make_request().measured_class() is None


def test_code_is_required_only_where_it_is_strict(make_request):
    code = CodeDigest(digest="1", functions={})
    assert make_request(code=code).required_code is None
    assert make_request(code=code, strict_code=True).required_code == code


@pytest.mark.parametrize("change", [{"kind": "a/b"}, {"kind": ""}, {"name": "../x"}, {"name": " "}])
def test_an_address_that_is_no_directory_is_refused(change, make_request):
    with pytest.raises(StoreError, match="not a valid kind or name"):
        make_request(**change).check_address()


def test_a_spec_without_a_text_is_refused(make_request):
    with pytest.raises(KeyEncodingError, match=r"spec\.x is nan"):
        make_request(spec={"x": float("nan")}).check_address()
