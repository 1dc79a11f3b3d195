"""The system prompt: an environment's tools and the turn grammar, at length or in few tokens."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.environments.protocol import (
    CALL_CLOSE,
    CALL_OPEN,
    FINAL_CLOSE,
    FINAL_OPEN,
    RESULT_CLOSE,
    RESULT_OPEN,
    render_final,
    render_tool_call,
)

if TYPE_CHECKING:
    from core.environments.base import Environment

_RULES = f"""\
You solve tasks with tools. Each turn of yours ends in exactly one block.

To call a tool, write
{{call}}
and read its answer between {RESULT_OPEN} and {RESULT_CLOSE} in the next message.

When you know the answer, write
{{final}}

A block holds one call or one answer, a call is one JSON object, and {{end}}."""

_ONE = "nothing follows the block"
_SEVERAL = (
    "a turn may hold up to {number} calls, block after block, with nothing between or after them.\n"
    "They run in that order, and their results come together, each with the id of its call"
)


def render_system_prompt(environment: "Environment") -> str:
    """Return the system prompt of an environment, in its prompt style and protocol version.

    Version v1 shows the two blocks with placeholders; the others show a call of the first tool and
    a final answer that could really occur.
    """
    specs, number = environment.tool_specs(), environment.grammar.max_calls
    if environment.prompt_style == "compact":
        return _compact(specs, number)
    return "\n\n".join([_rules(environment), "Tools:\n" + "\n".join(map(_describe, specs))])


def _rules(environment: "Environment") -> str:
    if environment.protocol_version == "v1":
        call = f'{CALL_OPEN}\n{{"arguments": {{...}}, "name": "..."}}\n{CALL_CLOSE}'
        final = f"{FINAL_OPEN}\n...\n{FINAL_CLOSE}"
    else:
        specs = environment.tool_specs()
        call = render_tool_call(specs[0]["name"], _example_arguments(specs[0]["parameters"]))
        final = render_final(environment.final_answer_example())
    number = environment.grammar.max_calls
    end = _ONE if number == 1 else _SEVERAL.format(number=number)
    return _RULES.format(call=call, final=final, end=end)


def render_protocol_prompt(environment: "Environment") -> str:
    """Return the turn grammar without the tools, for a chat template that shows those itself."""
    if environment.prompt_style == "compact":
        return f"Each turn is {_short_grammar(environment.grammar.max_calls)}"
    return _rules(environment)


def render_schemas(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return tool schemas as JSON, one a line, for a chat template that knows no tools."""
    lines = (json.dumps(tool, ensure_ascii=False, sort_keys=True) for tool in tools)
    return "\n".join(["Tools:", *lines])


def _compact(specs: list[dict[str, Any]], number: int) -> str:
    signatures = ", ".join(f"{spec['name']}({', '.join(_properties(spec))})" for spec in specs)
    return f"Tools: {signatures}\n{_short_grammar(number)}"


def _short_grammar(number: int) -> str:
    call = f'{CALL_OPEN}{{"arguments": {{}}, "name": ""}}{CALL_CLOSE}'
    calls = call if number == 1 else f"up to {number} {call}"
    return f"{calls} or {FINAL_OPEN}answer{FINAL_CLOSE}"


def _properties(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["parameters"].get("properties", {})


def _describe(spec: dict[str, Any]) -> str:
    required = spec["parameters"].get("required", [])
    lines = [f"- {spec['name']}: {spec['description']}"]
    for name, schema in _properties(spec).items():
        optional = "" if name in required else ", optional"
        lines.append(f"    {name} ({schema['type']}{optional}): {schema['description']}")
    return "\n".join(lines)


def _example_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    properties = parameters.get("properties", {})
    return {name: properties[name]["examples"][0] for name in parameters.get("required", [])}
