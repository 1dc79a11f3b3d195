import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.prompts import render_system_prompt
from core.environments.registry import make_environment
from core.errors import InputError
from core.models.toy_tokenizer import BYTES, CHARACTERS, FRAGMENTS, SPECIALS, ToyTokenizer
from core.trajectory.tokens import TokenCodec

TOKENIZER = ToyTokenizer()
CALL = '<tool_call>\n{"arguments": {"expression": "7 - 3"}, "name": "calculator"}\n</tool_call>'
RESULT = '<tool_result>\n{"ok": true, "result": "4"}\n</tool_result>'


def test_specials_take_the_first_ids():
    assert [TOKENIZER.encode(tag) for tag in SPECIALS] == [[index] for index in range(9)]
    assert (TOKENIZER.pad_id, TOKENIZER.eos_ids) == (0, (2,))
    assert TOKENIZER.decode([TOKENIZER.pad_id, *TOKENIZER.eos_ids]) == "<|endoftext|><|im_end|>"


def test_the_codec_contract_is_met():
    assert isinstance(TOKENIZER, TokenCodec)
    assert 200 <= TOKENIZER.vocab_size <= 460


def test_a_tool_call_and_its_result_are_short():
    assert len(TOKENIZER.encode(CALL)) == 9
    assert len(TOKENIZER.encode(RESULT)) == 7


def test_no_digit_is_merged():
    assert [TOKENIZER.decode([i]) for i in TOKENIZER.encode("(17 * 10) + 9")] == [
        *"(17", " * ", *"10)", " + ", "9",
    ]  # fmt: skip
    assert not any(character.isdigit() for text in FRAGMENTS for character in text)


def test_the_compact_system_prompt_is_short():
    prompt = render_system_prompt(make_environment("calculator", prompt_style="compact"))
    assert len(TOKENIZER.encode(prompt)) <= 13


def test_the_longest_entry_wins():
    assert len(TOKENIZER.encode("calculator")) == 1
    assert len(TOKENIZER.encode("calculators")) == 2


def test_every_entry_is_one_token_and_distinct():
    entries = [*SPECIALS, *CHARACTERS, *FRAGMENTS]
    assert len(set(entries)) == len(entries) == TOKENIZER.vocab_size - len(BYTES)
    assert [TOKENIZER.encode(text) for text in entries] == [[i] for i in range(len(entries))]


def test_the_digest_is_a_fact_of_the_vocabulary():
    assert ToyTokenizer().digest == TOKENIZER.digest
    assert len(TOKENIZER.digest) == 64


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(text: str):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.lists(st.integers(0, TOKENIZER.vocab_size - 1)))
def test_any_ids_decode(token_ids: list[int]):
    assert isinstance(TOKENIZER.decode(token_ids), str)


@given(st.lists(st.integers(0, TOKENIZER.vocab_size - len(BYTES) - 1)))
def test_decoding_is_concatenation_outside_the_bytes(token_ids: list[int]):
    assert TOKENIZER.decode(token_ids) == "".join(TOKENIZER.decode([i]) for i in token_ids)


def test_text_beyond_ascii_falls_back_to_bytes():
    assert len(TOKENIZER.encode("é")) == 2
    assert TOKENIZER.decode(TOKENIZER.encode("é")[:1]) == "�"


def test_a_lone_surrogate_is_refused():
    with pytest.raises(InputError, match=r"lone surrogate, U\+D800"):
        TOKENIZER.encode("a\ud800")
