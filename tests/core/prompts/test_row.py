import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PromptFileError
from core.prompts.files import RawRow
from core.prompts.row import columns, read_row

VERL = {
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3+4?"}],
    "data_source": "sums",
    "reward_model": {"style": "rule", "ground_truth": "7"},
}
QUESTION = {"question": "Tom has 3 pens and gets 4. How many?", "answer": "3+4=<<3+4=7>>7\n#### 7"}


def raw(values) -> RawRow:
    return RawRow("file row 5", 5, values)


def without(row, *path, **changes):
    copied = {key: dict(value) if isinstance(value, dict) else value for key, value in row.items()}
    section = copied
    for part in path[:-1]:
        section = section[part]
    if path:
        del section[path[-1]]
    return {**copied, **changes}


# ---------------------------------------------------------------- golden


def test_a_row_of_verl(spec):
    row = read_row(raw(VERL), spec())
    assert (row.system, row.user, row.answer) == ("Be brief.", "3+4?", "7")
    assert (row.data_source, row.demonstration, row.hint) == ("sums", None, None)


def test_a_row_of_gsm8k(gsm8k):
    row = read_row(raw(QUESTION), gsm8k(demonstration_key="answer", privileged_key="answer"))
    assert (row.system, row.user, row.answer) == ("", QUESTION["question"], "7")
    assert row.demonstration == row.hint == QUESTION["answer"]


def test_a_system_message_is_the_rows_own_or_the_recipes(spec, gsm8k):
    assert read_row(raw(VERL), spec(system_prompt="Other")).system == "Be brief."
    assert read_row(raw(QUESTION), gsm8k(system_prompt="Other")).system == "Other"


def test_a_reference_may_be_a_number_or_lack_the_marker(spec):
    for value, answer in ((7, "7"), (0.5, "0.5"), ("1,000", "1,000")):
        values = {**VERL, "reward_model": {"ground_truth": value}}
        given = spec(answer_check="numeric", answer_marker="####")
        assert read_row(raw(values), given).answer == answer


def test_columns_are_those_that_are_named(spec, gsm8k):
    assert columns(spec()) == ["prompt", "reward_model.ground_truth"]
    assert columns(gsm8k(demonstration_key="answer")) == ["question", "answer"]
    assert columns(spec(answer_key=None)) == ["prompt"]
    assert read_row(raw(without(VERL, "reward_model")), spec(answer_key=None)).answer == ""


# ---------------------------------------------------------------- refusals


def messages(*pairs):
    return {**VERL, "prompt": [{"role": role, "content": content} for role, content in pairs]}


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (without(VERL, "prompt"), "prompt is missing"),
        ({**VERL, "prompt": None}, "prompt is null"),
        ({**VERL, "prompt": 3}, "prompt is of type int"),
        ({**VERL, "prompt": []}, "prompt is an empty list"),
        ({**VERL, "prompt": "3+4?"}, "prompt is text, and a list"),
        ({**VERL, "prompt": ["3+4?"]}, r"prompt\[0\] is of type str"),
        ({**VERL, "prompt": [{"role": "user"}]}, r"prompt\[0\].content is missing"),
        (messages(("user", [{"type": "image"}])), r"prompt\[0\].content is of type list"),
        (messages(("user", " \n")), "prompt is empty"),
        (messages(("user", "a\ud800")), "half of a surrogate"),
        (messages(("system", "a\ud800"), ("user", "a")), "half of a surrogate"),
        (messages(("user", "a"), ("assistant", "b"), ("user", "c")), "messages of user, assistant"),
        (messages(("system", "a")), "messages of system"),
        (without(VERL, "reward_model", "ground_truth"), "ground_truth is missing"),
        (without(VERL, "reward_model"), "ground_truth is missing"),
        ({**VERL, "reward_model": {"ground_truth": None}}, "ground_truth is null"),
        ({**VERL, "reward_model": {"ground_truth": True}}, "ground_truth is of type bool"),
        ({**VERL, "reward_model": {"ground_truth": float("nan")}}, "ground_truth is nan"),
        ({**VERL, "reward_model": {"ground_truth": ""}}, "ground_truth is empty"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused_with_its_place(spec, values, what):
    with pytest.raises(PromptFileError, match=f"^file row 5: .*{what}"):
        read_row(raw(values), spec())


def test_a_reference_that_no_number_is_cannot_be_compared_as_one(gsm8k):
    values = {**QUESTION, "answer": "#### seven"}
    with pytest.raises(PromptFileError, match="answer is 'seven', which is no number"):
        read_row(raw(values), gsm8k())
    assert read_row(raw(values), gsm8k(answer_check="exact")).answer == "seven"


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "ground_truth"]) | st.text(), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(VALUES, VALUES, st.booleans())
def test_any_row_is_read_or_refused(spec, prompt, reward, plain):
    values = {"prompt": prompt, "reward_model": reward}
    try:
        row = read_row(raw(values), spec(allow_plain_string_prompts=plain))
    except PromptFileError as error:
        assert error.message.startswith("file row 5: ")
    else:
        assert row.user.strip()
        assert row.answer.strip()
