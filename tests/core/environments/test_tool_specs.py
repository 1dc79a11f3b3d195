"""A spec is the JSON schema that one would have written by hand."""

from core.environments.tool_specs import Argument, tool_spec


def test_a_spec_lists_arguments_examples_and_what_is_required():
    spec = tool_spec(
        "move",
        "Moves a piece.",
        name=Argument("string", "of the piece", example="rook"),
        steps=Argument("integer", "how far", required=False),
    )
    assert spec == {
        "name": "move",
        "description": "Moves a piece.",
        "parameters": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "of the piece", "examples": ["rook"]},
                "steps": {"type": "integer", "description": "how far"},
            },
            "required": ["name"],
        },
    }
