"""Chat templates of tokenizers of transformers."""

import json

import pytest
from transformers import AutoTokenizer

from core.errors import ChatTemplateError
from core.models.chat_template import TokenizerTemplate, template_of
from core.models.tokenizer import load_tokenizer

ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
BRACKETS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<s>' + m.content + '</s>' }}"
    "{% else %}{{ '<s>' + m.content }}{% endif %}{% endfor %}"
)


@pytest.fixture
def saved(tmp_path, save_tokenizer, tiny_tokenizer):
    """Return f(source, specials): a directory with a tokenizer and a chat template."""

    def save(source, specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"), **config):
        save_tokenizer(tmp_path, tiny_tokenizer(specials=specials))
        (tmp_path / "chat_template.jinja").write_text(source)
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return save


def loaded(path):
    return AutoTokenizer.from_pretrained(path)


def test_messages_tools_and_prompt_reach_the_template(saved):
    source = (
        "{{ messages[1].content }} {{ tools[0].function.name if tools else 'none' }} "
        "{{ add_generation_prompt }}"
    )
    render = TokenizerTemplate(loaded(saved(source)))
    assert render(ASKED, [], False) == "u none False"
    assert render(ASKED, [{"type": "function", "function": {"name": "f"}}], True) == "u f True"


def test_a_tokenizer_may_have_none(tmp_path, save_tokenizer, tiny_tokenizer):
    save_tokenizer(tmp_path, tiny_tokenizer())
    assert template_of(loaded(tmp_path)) is None


def test_the_date_in_a_prompt_is_fixed(saved):
    source = "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }}"
    assert TokenizerTemplate(loaded(saved(source)))(ASKED, [], False) == "26 Jul 2024"


def test_a_template_that_asks_the_clock_is_refused(saved):
    with pytest.raises(ChatTemplateError, match="today's date"):
        TokenizerTemplate(loaded(saved("{{ strftime_now('%d') }}")))(ASKED, [], False)


def test_what_a_template_raises_is_an_error_of_two_lines(saved):
    with pytest.raises(ChatTemplateError, match="refuses the messages system, user: no system"):
        TokenizerTemplate(loaded(saved("{{ raise_exception('no system') }}")))(ASKED, [], False)


def test_a_template_cannot_reach_out_of_its_sandbox(saved):
    with pytest.raises(ChatTemplateError):
        TokenizerTemplate(loaded(saved("{{ ''.__class__.__mro__[1].__subclasses__() }}")))(
            ASKED, [], False
        )


def test_the_terminator_of_the_template_ends_a_turn_too(saved):
    """C14: what generation_config.json says, and what the template writes."""
    path = saved(BRACKETS, specials=("<pad>", "<s>", "</s>", "<end>"))
    (path / "generation_config.json").write_text('{"eos_token_id": [3, 0]}')
    codec = load_tokenizer(path)
    assert codec.speaks_chatml is False
    assert {0, 2, 3} <= set(codec.eos_ids)
    assert codec.control_texts[:4] == ("<pad>", "<s>", "</s>", "<end>")
