import pytest

from core.errors import RecipeError
from core.recipe.document import Document


@pytest.fixture
def written() -> Document:
    document = Document("file.yaml")
    document.set(("a", "b"), 1, "file.yaml:2")
    document.set(("a", "c"), 2, "file.yaml:3")
    return document


def test_place_of_a_missing_key_is_that_of_its_section(written):
    written.mark(("a",), "file.yaml:1")
    assert written.place(("a", "z")) == "file.yaml:1"
    assert written.place(("a", "c")) == "file.yaml:3"
    assert written.place(("z",)) == "file.yaml"


def test_moving_keeps_place_and_submitted_name_and_removes_empty_sections(written):
    written.move(("a", "b"), ("x", "y"))
    written.pop(("a", "c"))
    assert written.values == {"x": {"y": 1}}
    assert written.place(("x", "y")) == "file.yaml:2"
    assert written.label(("x", "y")) == "a.b"


def test_absent_differs_from_null(written):
    written.set(("n",), None, "file.yaml:4")
    assert written.has(("n",))
    assert not written.has(("n", "m"))
    assert written.get(("m",), 7) == 7


def test_overwriting_a_section_forgets_its_places(written):
    written.set(("a",), None, "override 'a=null'")
    assert written.place(("a", "b")) == "override 'a=null'"


def test_null_section_is_replaced_by_keys(written):
    written.set(("a",), None, "file.yaml:4")
    written.set(("a", "b"), 5, "file.yaml:5")
    assert written.values == {"a": {"b": 5}}


def test_key_below_a_value_is_refused(written):
    with pytest.raises(RecipeError, match=r"file.yaml:2: a.b is a value, and a.b.c would be a key"):
        written.set(("a", "b", "c"), 1, "override")


def test_one_setting_under_two_names_is_refused(written):
    with pytest.raises(RecipeError, match=r"a.b and a.c are one setting, given twice"):
        written.move(("a", "b"), ("a", "c"))
