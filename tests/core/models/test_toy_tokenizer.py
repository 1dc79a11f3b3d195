import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.prompts import render_system_prompt
from core.environments.recovery_templates import all_names
from core.environments.registry import make_environment
from core.errors import InputError
from core.models.toy_fragments import FRAGMENTS
from core.models.toy_tokenizer import BYTES, CHARACTERS, SPECIALS, ToyTokenizer
from core.rollout.oracle import oracle_trajectory
from core.trajectory.tokens import TokenCodec

TOKENIZER = ToyTokenizer()
VOCABULARIES = sorted(FRAGMENTS)
DIGESTS = {
    "calculator": "6b03b078974f2535",
    "recovery": "e6ba4e50a3abe9e0",
    "second": "cfd31035c585b5f1",
    "worlds": "e695e902c671f8d2",
}
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
    fragments = [text for each in FRAGMENTS.values() for text in each]
    assert not any(character.isdigit() for text in fragments for character in text)


def test_the_compact_system_prompt_is_short():
    prompt = render_system_prompt(make_environment("calculator", prompt_style="compact"))
    assert len(TOKENIZER.encode(prompt)) <= 13


def test_the_longest_entry_wins():
    assert len(TOKENIZER.encode("calculator")) == 1
    assert len(TOKENIZER.encode("calculators")) == 2


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_entry_is_one_token_and_distinct(vocabulary: str):
    tokenizer = ToyTokenizer(vocabulary)
    entries = [tokenizer.decode([i]) for i in range(tokenizer.vocab_size - len(BYTES))]
    assert {*entries} == {*SPECIALS, *CHARACTERS, *FRAGMENTS[vocabulary]}
    assert len(set(entries)) == len(entries) == tokenizer.vocab_size - len(BYTES)
    assert [tokenizer.encode(text) for text in entries] == [[i] for i in range(len(entries))]


@pytest.mark.parametrize(
    ("world", "most"),
    [("calculator", 70), ("jsonnav", 70), ("sqlite", 115), ("sqlite_recovery", 720),
     ("tool_policy", 90)],
)  # fmt: skip
def test_the_worlds_vocabulary_makes_episodes_of_every_world_short(world: str, most: int):
    environment, tokenizer = make_environment(world, prompt_style="compact"), ToyTokenizer("worlds")
    for index in range(12):
        task = environment.generate_task(index, seed=7, difficulty="easy", split="train")
        trace = oracle_trajectory(environment, task, tokenizer)
        assert len(trace.token_ids) <= most
        assert tokenizer.encode(tokenizer.decode(trace.token_ids)) == trace.token_ids


def test_the_recovery_vocabulary_has_every_name_of_a_schema_and_short_episodes():
    tokenizer = ToyTokenizer("recovery")
    assert [len(tokenizer.encode(name)) for name in all_names()] == [1] * 148
    world = make_environment("sqlite_recovery", prompt_style="compact", schemas="mixed")
    for index in range(24):
        task = world.generate_task(index, seed=300, difficulty="hard", split="train")
        assert len(oracle_trajectory(world, task, tokenizer).token_ids) <= 280


def test_the_digest_is_a_fact_of_the_vocabulary():
    assert ToyTokenizer().digest == TOKENIZER.digest == ToyTokenizer("calculator").digest
    assert ToyTokenizer("worlds").digest != TOKENIZER.digest
    assert len(TOKENIZER.digest) == 64
    assert {name: ToyTokenizer(name).digest[:16] for name in VOCABULARIES} == DIGESTS


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(VOCABULARIES))
def test_any_text_survives(text: str, vocabulary: str):
    tokenizer = ToyTokenizer(vocabulary)
    assert tokenizer.decode(tokenizer.encode(text)) == text


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


def test_pieces_are_what_the_tokens_decode_to():
    for entries in ("calculator", "second"):
        codec = ToyTokenizer(entries)
        pieces = codec.pieces()
        assert list(pieces) == list(range(codec.vocab_size))
        for index, piece in pieces.items():
            assert piece.content.decode("utf-8", "replace") == codec.decode([index])
        roles = [pieces[index].role for index in range(10)]
        assert roles == ["control", "control", "end", *["control"] * 6, "text"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_second_vocabulary_is_reversible_too_and_another_one(text):
    second = ToyTokenizer("second")
    assert second.decode(second.encode(text)) == text
    assert second.digest != TOKENIZER.digest
