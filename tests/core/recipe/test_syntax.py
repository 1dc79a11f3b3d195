import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import RecipeError
from core.recipe.syntax import parse_document, parse_value, write_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-7", -7),
        ("1_000", 1000),
        ("0", 0),
        ("3e-3", 0.003),
        ("1E+2", 100.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5", -1.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_plain_scalars_have_their_type(text, value):
    assert parse_value(text, "here") == value
    assert type(parse_value(text, "here")) is type(value)


@pytest.mark.parametrize(
    "word", ["no", "on", "2026-07-27", "1:30", "007", "0x1F", ".nan", ".inf", "1_", "1__0", "e5"]
)
def test_what_yaml_1_1_would_convert_stays_a_word(word):
    assert parse_value(word, "here") == word


@pytest.mark.parametrize("text", ["'3'", '"3"'])
def test_quoted_scalars_are_words(text):
    assert parse_value(text, "here") == "3"


def test_lists_may_be_nested_in_a_value():
    assert parse_value("[a, 1, [true]]", "here") == ["a", 1, [True]]


def test_every_key_knows_its_line():
    document = parse_document("run:\n  seed: 1\n\ntrain: {cycles: 2}\n", "r.yaml")
    assert document.values == {"run": {"seed": 1}, "train": {"cycles": 2}}
    assert document.place(("run", "seed")) == "r.yaml:2"
    assert document.place(("train", "cycles")) == "r.yaml:4"


@given(st.integers(-(10**30), 10**30))
def test_integers_survive(number):
    assert parse_value(str(number), "here") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive(number):
    assert parse_value(repr(number), "here") == number


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^r.yaml: the recipe is empty"),
        ("# nothing\n", r"^r.yaml: the recipe is empty"),
        ("---\n...\n", r"^r.yaml:2: a recipe is a mapping"),
        ("\n- a", r"^r.yaml:2: a recipe is a mapping"),
        ("3", r"^r.yaml:1: a recipe is a mapping"),
        ("a: 1\nb: !!python/object:os.system x", r"^r.yaml:2: the tag !!python/object:os.system"),
        ("a: !local 1", r"^r.yaml:1: the tag !local is refused"),
        ("a: &x 1", r"^r.yaml:1: the anchor or alias 'x' is refused"),
        ("a: *x", r"^r.yaml:1: the anchor or alias 'x' is refused"),
        ("a: 1\na: 2", r"^r.yaml:2: a is given twice, first at r.yaml:1"),
        ("t:\n  c: 1\n  c: 2", r"^r.yaml:3: t.c is given twice, first at r.yaml:2"),
        ("a: [", r"^r.yaml:1: "),
        ("a: b: c", r"^r.yaml:1: mapping values"),
        ("\ta: 1", r"^r.yaml:1: "),
        ("a: 1\n---\nb: 2", r"^r.yaml:2: but found another document"),
        ("? [a]\n: 1", r"^r.yaml:1: a key must be a word"),
        ('"": 1', r"^r.yaml:1: a key must be a word"),
        ("a: 1e999", r"^r.yaml:1: 1e999 is too large"),
        ("a: \x00", r"^r.yaml: special characters"),
        ("{a: " * 40, r"^r.yaml:1: nested deeper than 32"),
        ("a: " + "[" * 5000, r"^r.yaml:1: nested deeper than 32"),
    ],
)
def test_what_is_not_a_plain_mapping_is_refused_with_its_line(text, message):
    with pytest.raises(RecipeError, match=message) as caught:
        parse_document(text, "r.yaml")
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_number_of_many_digits_is_a_word():
    assert parse_value("9" * 5000, "here") == "9" * 5000


@pytest.mark.parametrize("text", ["{a: 1}", "a: 1"])
def test_override_may_not_hold_a_section(text):
    with pytest.raises(RecipeError, match="a scalar or a list"):
        parse_value(text, "here")


@pytest.mark.parametrize(
    "text", ["0E0", "1_000", "no", "null", "~", "true", "3e-3", "", "a: b", "x"]
)
def test_a_text_is_written_so_that_it_comes_back_as_text(text):
    written = write_document({"key": text})
    assert parse_document(written, "r.yaml").values == {"key": text}
