"""JSON Schema of a submitted recipe, for completion and hover in editors."""

from functools import reduce
from typing import Any

from pydantic import BaseModel

from core.recipe.execution import EXECUTION_KEYS, EXECUTION_SECTIONS
from core.recipe.keys import sections_of
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime


def json_schema() -> dict[str, Any]:
    """Return the schema: identity keys, execution keys in their submitted places, ``runtime``.

    Each key carries its docstring, type, default and bounds. Combinations are not expressed.
    """
    schema = Recipe.model_json_schema()
    runtime = Runtime.model_json_schema()
    definitions = schema["$defs"]
    definitions.update(runtime.pop("$defs"))
    definitions["Runtime"] = runtime
    schema["properties"]["runtime"] = {"$ref": "#/$defs/Runtime"}
    for name in EXECUTION_SECTIONS:
        empty = {"type": "object", "additionalProperties": False, "properties": {}}
        schema["properties"][name] = empty
    for key, field in EXECUTION_KEYS.items():
        *sections, name = key.split(".")
        if sections[0] in EXECUTION_SECTIONS:
            place = schema["properties"][sections[0]]
        else:
            place = definitions[_section(Recipe, sections).__name__]
        *groups, setting = field.split(".")
        source = definitions[_section(Runtime, groups).__name__]
        place["properties"][name] = source["properties"][setting]
    return schema


def _section(model: type[BaseModel], names: list[str]) -> type[BaseModel]:
    """Return the section class reached from ``model`` by ``names``.

    Where a section is one of several kinds, an execution key belongs to the last: the others have
    none.
    """
    return reduce(
        lambda section, name: sections_of(section.model_fields[name].annotation)[-1], names, model
    )
