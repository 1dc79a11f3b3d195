"""Tables in docs/ made from the recipe's schema: ``python tests/architecture/recipe_table.py``."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from core.recipe.execution import EXECUTION_KEYS
from core.recipe.keys import fields, named_fields, sections_of
from core.recipe.recipe import Recipe
from core.recipe.support import UNBUILT

REPO = Path(__file__).resolve().parents[2]
ROLES = ("student", "teacher", "reference")
WORDS = {
    int: "integer",
    float: "number",
    bool: "true, false",
    str: "text",
    Path: "path",
    dict: "mapping",
    tuple: "list",
    type(None): "null",
}
BOUNDS = {
    "gt": "> {}",
    "ge": "≥ {}",
    "lt": "< {}",
    "le": "≤ {}",
    "pattern": "matching `{}`",
    "min_length": "{} or longer",
    "max_length": "up to {} long",
}


class Row(NamedTuple):
    """One key of a table."""

    key: str
    default: str
    values: str
    place: str
    meaning: str


def recipe_tables() -> str:
    """One table per section of a submitted recipe, execution keys in their submitted places."""
    heads = dict.fromkeys([*Recipe.model_fields, *(key.split(".")[0] for key in EXECUTION_KEYS)])
    return "\n".join(_section(head) for head in heads if _rows(head))


def runtime_table() -> str:
    """What may be written as ``runtime.…``, less what has no effect."""
    own = {f"runtime.{field}": key for key, field in EXECUTION_KEYS.items()}
    rows = []
    for key, field in fields().items():
        own_table = key.startswith("runtime.inherited") or sections_of(field.annotation)
        if key.startswith("runtime.") and not own_table:
            submitted = f"`{own[key]}`" if key in own else ""
            rows.append([f"`{key}`", _default(field), _values(field), submitted, _meaning(field)])
    return _table(["key", "default", "values", "also written as", "meaning"], rows)


def execution_table() -> str:
    """Keys of a submitted recipe that are no part of any key of an artifact."""
    rows = [
        [f"`{key}`", _place(key), _meaning(fields()[f"runtime.{EXECUTION_KEYS[key]}"])]
        for key in EXECUTION_KEYS
    ]
    return _table(["submitted as", "becomes", "meaning"], rows)


def unbuilt_table() -> str:
    """Keys that are refused because their feature does not exist."""
    rows: dict[tuple[str, str], list[str]] = {}
    for row in UNBUILT:
        values = [f"`{_json(value)}`" for value in row.values or ()]
        refused = ", ".join(values) or "anything but null"
        rows.setdefault((refused, row.instead), []).append(_merged(row.key))
    return _table(
        ["key", "refused", "instead"],
        [
            [", ".join(f"`{key}`" for key in dict.fromkeys(keys)), refused, instead]
            for (refused, instead), keys in rows.items()
        ],
    )


TABLES = {
    ("docs/recipes.md", "recipe keys"): recipe_tables,
    ("docs/recipes.md", "runtime keys"): runtime_table,
    ("docs/recipes.md", "not built"): unbuilt_table,
    ("docs/caching.md", "execution keys"): execution_table,
}
"""File and marker -> what stands between ``<!-- marker -->`` and ``<!-- end -->`` there."""


def _section(head: str) -> str:
    field = Recipe.model_fields.get(head)
    meaning = _meaning(field) if field is not None and sections_of(field.annotation) else ""
    optional = field is not None and field.default is None and bool(meaning)
    note = " The section is null unless written." if optional else ""
    title = f"### `{head}`\n" + (f"\n{meaning}{note}\n" if meaning else "")
    rows = [[f"`{row.key}`", *row[1:]] for row in _rows(head)]
    return f"{title}\n{_table(['key', 'default', 'values', 'goes to', 'meaning'], rows)}"


def _rows(head: str) -> list[Row]:
    """Rows of a section; equal keys of several models are one row."""
    merged: dict[Row, list[str]] = {}
    for row in _all_rows(head):
        role = next((role for role in ROLES if row.key.startswith(f"models.{role}.")), None)
        merged.setdefault(row._replace(key=_merged(row.key)), []).append(role or "")
    return [row._replace(key=_named(row.key, roles)) for row, roles in merged.items()]


def _all_rows(head: str) -> Iterator[Row]:
    for key, field in named_fields(Recipe):
        if key.split(".")[0] == head and not sections_of(field.annotation):
            yield Row(key, _default(field), _values(field), "identity", _meaning(field))
    for key, target in EXECUTION_KEYS.items():
        if key.split(".")[0] == head:
            field = fields()[f"runtime.{target}"]
            yield Row(key, _default(field), _values(field), _place(key), _meaning(field))


def _place(key: str) -> str:
    target = EXECUTION_KEYS[key]
    return "no effect" if target.startswith("inherited.") else f"`runtime.{target}`"


def _merged(key: str) -> str:
    return re.sub(rf"^models\.({'|'.join(ROLES)})\.", "models.*.", key)


def _named(key: str, roles: list[str]) -> str:
    present = [role for role in dict.fromkeys(roles) if role]
    names = "{" + ",".join(present) + "}" if len(present) > 1 else "".join(present)
    return key.replace("models.*", f"models.{names}")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return f"`{_json(field.get_default(call_default_factory=True))}`"


def _json(value: Any) -> str:
    plain = value.as_posix() if isinstance(value, Path) else value
    return plain if isinstance(plain, str) and plain else json.dumps(plain, ensure_ascii=False)


def _values(field: FieldInfo) -> str:
    return _described(field.annotation, field.metadata)


def _described(annotation: Any, limits: Any = ()) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *own = get_args(annotation)
        return _described(inner, [*_flat(own), *limits])
    if origin is Literal:
        return ", ".join(f"`{_json(value)}`" for value in get_args(annotation))
    if origin not in WORDS and get_args(annotation):
        parts = get_args(annotation)
        return ", ".join(_described(p, limits if p is not type(None) else ()) for p in parts)
    words = WORDS[origin or annotation]
    return " ".join([words, ", ".join(_limits(limits))]).strip()


def _flat(annotations: list[Any]) -> list[Any]:
    """Limits of ``Field(…)`` are one object with a list of its own."""
    return [each for one in annotations for each in getattr(one, "metadata", [one])]


def _limits(limits: Any) -> Iterator[str]:
    for limit in limits:
        for name, words in BOUNDS.items():
            bound = getattr(limit, name, None)
            if bound is not None:
                yield words.format(f"{bound:,}" if isinstance(bound, int) else bound)


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").replace("``", "`").split())


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = ([re.sub(r"\|", r"\\|", cell) for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def _block(marker: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {marker} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def in_docs(file: str, marker: str) -> str:
    """What stands between the markers now."""
    found = _block(marker).search((REPO / file).read_text(encoding="utf-8"))
    return found.group(2).strip("\n") if found else ""


def write() -> None:
    """Bring every table up to date."""
    for (file, marker), make in TABLES.items():
        text, made = (REPO / file).read_text(encoding="utf-8"), make().strip("\n")
        block = _block(marker)
        text = block.sub(lambda m, made=made: f"{m[1]}\n{made}\n{m[3]}", text)
        (REPO / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
