import json

import pytest

from core.recipe.editor_schema import json_schema
from core.recipe.keys import submitted_keys

SCHEMA = json_schema()


def reachable(schema: dict, prefix: str = "") -> dict[str, dict]:
    """Return the schema of every leaf key, following references and unions."""
    if "$ref" in schema:
        return reachable(SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], prefix)
    unions = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    below = [reachable(each, prefix) for each in unions]
    below += [
        reachable(each, f"{prefix}.{name}".lstrip("."))
        for name, each in schema.get("properties", {}).items()
    ]
    merged = {key: found for group in below for key, found in group.items()}
    inside = {key: found for key, found in merged.items() if key != prefix}
    return inside or {prefix: schema}


def test_every_key_of_a_submitted_recipe_is_in_the_schema():
    assert set(reachable(SCHEMA)) == set(submitted_keys())


def test_every_key_is_explained():
    explained = {key for key, schema in reachable(SCHEMA).items() if schema.get("description")}
    assert explained == set(submitted_keys())


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("rollout.max_turns", "maximum", 64),
        ("train.cycles", "default", 4),
        ("loss.chunk_size", "default", 256),
        ("memory.oom_retries", "maximum", 10),
        ("loss.aggregation", "enum", ["native_per_trajectory", "token-mean"]),
    ],
)
def test_bounds_defaults_and_choices_are_there(key, name, value):
    assert reachable(SCHEMA)[key][name] == value


def test_unknown_keys_are_marked_in_every_section():
    sections = [each for each in SCHEMA["$defs"].values() if "properties" in each]
    assert all(each["additionalProperties"] is False for each in sections)
    assert SCHEMA["properties"]["cache"]["additionalProperties"] is False


def test_schema_is_plain_json():
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
