"""Ids are exactly those of the text, texts exactly those of the ids, digests those of content."""

import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from core.errors import InputError, ModelSourceError, TokenizerMismatchError
from core.models.tokenizer import (
    HFTokenizer,
    content_digest,
    generation_prompts_differ,
    load_tokenizer,
)
from core.trajectory.tokens import TokenCodec, TokenRole

SAMPLES = (
    "",
    " leading, trailing ",
    "tabs\tand\r\nCRLF\n\n\n",
    "3.14159 + 271828 = 12",
    "naïve ☃ 漢字 🧪 é",
    "a  .  b , c n't 's",
    '<tool_call>\n{"name": "calculator"}\n</tool_call>',
    "<|im_start|>user\nhi<|im_end|>\n",
    "\u0000\u2028\ufeff",
)


@pytest.fixture(scope="module")
def codec(tiny_llama):
    return load_tokenizer(tiny_llama)


def test_it_is_a_codec(codec):
    assert isinstance(codec, TokenCodec)
    assert codec.vocab_size == 3 + 256 + 5


def test_control_tags_become_single_ids(codec):
    assert codec.encode("<|im_start|>tool<|im_end|>") == [1, 261, 2]


def test_nothing_is_added_although_the_file_asks_for_it(tiny_llama):
    content = json.loads((tiny_llama / "tokenizer.json").read_text())
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}
        },
    }
    content["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    codec = HFTokenizer(Tokenizer.from_str(json.dumps(content)), (2,), 2)
    assert codec.encode("tool 12") == [261, codec.encode(" ")[0], 262]


@pytest.mark.parametrize("text", SAMPLES)
def test_texts_survive(codec, text):
    assert codec.decode(codec.encode(text)) == text


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(codec, text):
    assert codec.decode(codec.encode(text)) == text


def test_every_declared_end_of_turn_counts(tmp_path, save_tokenizer, tiny_tokenizer):
    """Case C14: a list in the generation config, another id in the model's, ChatML's own tag."""
    save_tokenizer(tmp_path, tiny_tokenizer())
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 9}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 7]}))
    assert load_tokenizer(tmp_path).eos_ids == (0, 2, 7, 9)


def test_the_end_of_a_turn_may_be_the_pad_id(codec):
    """Case C12: nothing may infer padding from ids, so equality is harmless and allowed."""
    assert codec.pad_id == 2
    assert codec.pad_id in codec.eos_ids


def test_equal_sizes_do_not_make_equal_vocabularies(tiny_tokenizer):
    """Case C65: exchanging the ids of two entries changes the digest and nothing else."""
    plain, swapped = tiny_tokenizer(), tiny_tokenizer(swap=("a", "b"))
    assert plain.get_vocab_size() == swapped.get_vocab_size()
    assert content_digest(plain.to_str()) != content_digest(swapped.to_str())


def test_other_merges_specials_or_normalisers_change_the_digest(tiny_tokenizer):
    plain = json.loads(tiny_tokenizer().to_str())
    merges = {**plain, "model": {**plain["model"], "merges": plain["model"]["merges"][:-1]}}
    normaliser = {**plain, "normalizer": {"type": "NFC"}}
    specials = {**plain, "added_tokens": plain["added_tokens"][:-1]}
    digests = {content_digest(json.dumps(c)) for c in (plain, merges, normaliser, specials)}
    assert len(digests) == 4


def test_the_way_a_file_is_written_does_not_change_the_digest(tiny_tokenizer):
    plain = json.loads(tiny_tokenizer().to_str())
    vocabulary = dict(reversed(plain["model"]["vocab"].items()))
    merges = [" ".join(merge) for merge in plain["model"]["merges"]]
    rewritten = {**plain, "model": {**plain["model"], "vocab": vocabulary, "merges": merges}}
    rewritten["truncation"] = {"max_length": 3}
    same = content_digest(json.dumps(rewritten, indent=2))
    assert same == content_digest(tiny_tokenizer().to_str())


def test_lone_surrogates_are_refused(codec):
    with pytest.raises(InputError, match="lone surrogate"):
        codec.encode("half \ud83d")


def test_a_tokenizer_without_chatml_is_refused(tmp_path, save_tokenizer, tiny_tokenizer):
    save_tokenizer(tmp_path, tiny_tokenizer(specials=("<pad>", "<s>", "<|im_end|>")))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelSourceError, match=r"no single tokens <\|im_start\|>.*\nUse a model"):
        load_tokenizer(tmp_path)


def test_a_damaged_tokenizer_is_refused(tmp_path, save_tokenizer, tiny_tokenizer):
    save_tokenizer(tmp_path, tiny_tokenizer())
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(ModelSourceError, match=r"tokenizer in .* cannot be loaded"):
        load_tokenizer(tmp_path)


@pytest.mark.slow
def test_the_real_tokenizer_keeps_every_sample(smollm2):
    codec = load_tokenizer(smollm2)
    assert [codec.decode(codec.encode(text)) for text in SAMPLES] == list(SAMPLES)
    assert (codec.vocab_size, codec.eos_ids, codec.pad_id) == (49_152, (2,), 2)
    assert codec.encode("<|im_start|>12<|im_end|>") == [1, 33, 34, 2]


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ EXTRA }}{% endif %}"
)


@pytest.fixture
def with_template(tiny_llama, tmp_path):
    """Return f(template): the tokenizer of a copy of the model that has this chat template."""

    def load(template):
        directory = tmp_path / f"m{len(list(tmp_path.iterdir()))}"
        shutil.copytree(tiny_llama, directory)
        if template is not None:
            (directory / "chat_template.jinja").write_text(template)
        return load_tokenizer(directory)

    return load


def test_models_that_begin_a_reply_in_another_way_are_told_apart(with_template):
    """C24: a thinking teacher puts its mass on a thought where the student begins to answer."""
    plain = with_template(TEMPLATE.replace("{{ EXTRA }}", ""))
    thinking = with_template(TEMPLATE.replace("{{ EXTRA }}", "<think>\n"))
    assert plain.generation_prompt == "<|im_start|>assistant\n"
    assert thinking.generation_prompt == "<|im_start|>assistant\n<think>\n"
    assert plain.digest == thinking.digest
    assert generation_prompts_differ(plain, thinking)
    assert not generation_prompts_differ(plain, plain)


@pytest.mark.parametrize("template", [None, "{{ raise_exception('system message first') }}"])
def test_a_model_whose_template_cannot_be_asked_differs_from_none(with_template, template):
    silent = with_template(template)
    assert silent.generation_prompt is None
    assert not generation_prompts_differ(silent, with_template(TEMPLATE))


def test_pieces_of_a_byte_level_vocabulary_are_its_bytes(codec):
    pieces = codec.pieces()
    assert sorted(pieces) == list(range(codec.vocab_size))
    for text in ("tool", " a", "12", "é", "\n"):
        spelled = b"".join(pieces[index].content for index in codec.encode(text))
        assert spelled == text.encode()
    singles = [piece.content for piece in pieces.values() if len(piece.content) == 1]
    assert sorted(singles) == [bytes([byte]) for byte in range(256)]


def test_added_tokens_are_control_tags_and_some_of_them_end_a_turn(codec):
    pieces = codec.pieces()
    found = [(pieces[index].content, pieces[index].role) for index in range(3)]
    assert found == [
        (b"<|endoftext|>", TokenRole.CONTROL),
        (b"<|im_start|>", TokenRole.CONTROL),
        (b"<|im_end|>", TokenRole.END),
    ]
    assert {pieces[index].role for index in range(3, codec.vocab_size)} == {TokenRole.TEXT}


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}},
    ],
    ids=["no bytes", "a space of its own"],
)
def test_tokens_without_bytes_of_their_own_are_refused(tiny_tokenizer, changes):
    content = {**json.loads(tiny_tokenizer().to_str()), **changes}
    codec = HFTokenizer(Tokenizer.from_str(json.dumps(content)), (2,), 2)
    with pytest.raises(TokenizerMismatchError, match="without bytes of their own"):
        codec.pieces()
