"""What the student reads before the task."""

import pytest

from core.environments.protocol import parse_turn
from core.environments.registry import make_environment
from core.models.toy_tokenizer import ToyTokenizer


def test_the_compact_prompt_is_a_few_tokens_and_names_all():
    prompt = make_environment("calculator", prompt_style="compact").system_prompt()
    assert len(ToyTokenizer().encode(prompt)) <= 50
    for name in ("calculator(expression)", "convert(from_unit, to_unit, value)"):
        assert name in prompt


def test_the_full_prompt_explains_every_parameter():
    environment = make_environment("calculator")
    prompt = environment.system_prompt()
    for spec in environment.tool_specs():
        assert f"- {spec['name']}: {spec['description']}" in prompt
        for name, schema in spec["parameters"]["properties"].items():
            assert f"    {name} ({schema['type']}): {schema['description']}" in prompt


@pytest.mark.parametrize(("version", "reads"), [("v1", False), ("v2", True)])
def test_only_the_second_version_shows_blocks_that_can_be_read(version, reads):
    prompt = make_environment("calculator", protocol_version=version).system_prompt()
    call = prompt[prompt.index("<tool_call>") : prompt.index("</tool_call>")] + "</tool_call>"
    turn = parse_turn(call)
    assert (turn.kind == "tool_call") is reads
    assert turn.arguments == ({"expression": "3 * (4 + 5)"} if reads else None)
    assert ("<final>\n42\n</final>" in prompt) is reads
