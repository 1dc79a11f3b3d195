"""What a tool tells a model about itself, without writing the JSON schema by hand."""

from dataclasses import dataclass
from typing import Any, Literal

JsonType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True)
class Argument:
    """One argument of a tool."""

    kind: JsonType
    """Its JSON type."""
    description: str
    """What it means, for the model."""
    example: str | float | bool | None = None
    """A value that could really be sent; shown in prompts. Required arguments need one."""
    required: bool = True
    """A call without it makes no sense."""


def tool_spec(name: str, description: str, /, **arguments: Argument) -> dict[str, Any]:
    """Return the spec of a tool, as ``Environment.tool_specs`` wants it.

    Args:
        name: Its name.
        description: What it does, in one sentence.
        **arguments: Its arguments by name.
    """
    properties = {key: _schema(argument) for key, argument in arguments.items()}
    required = [key for key, argument in arguments.items() if argument.required]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


def _schema(argument: Argument) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": argument.kind, "description": argument.description}
    return schema if argument.example is None else {**schema, "examples": [argument.example]}
