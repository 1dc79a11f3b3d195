"""YAML read as data.

Plain scalars follow the YAML 1.2 core schema, so ``3e-3`` is a number while ``no`` and
``2026-07-27`` are words. Tags, anchors, aliases, duplicate keys and deep nesting are refused:
nothing in a recipe can execute, multiply or hide.
"""

import math
import re
from typing import Any

import yaml

from core.errors import RecipeError
from core.recipe.document import Document, KeyPath

MAX_DEPTH = 32
MAX_DIGITS = 40
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)


def parse_document(text: str, origin: str) -> Document:
    """Read one YAML mapping.

    Raises:
        RecipeError: With file and line, if the text is empty, not a mapping, not YAML, or uses a
            tag, anchor, alias or duplicate key.
    """
    reader = _Reader(origin)
    node = reader.compose(text)
    if node is None:
        raise RecipeError(f"{origin}: the recipe is empty", "Start from recipes/toy.yaml.")
    if not isinstance(node, yaml.MappingNode):
        raise RecipeError(
            f"{reader.place(node)}: a recipe is a mapping of sections",
            "Write `models:`, `environment:` and the other sections at the left margin.",
        )
    reader.document.values = reader.mapping(node, ())
    return reader.document


def parse_value(text: str, origin: str) -> Any:
    """Read one YAML scalar or list, as in an override.

    Raises:
        RecipeError: If it is anything else.
    """
    reader = _Reader(origin)
    node = reader.compose(text)
    if isinstance(node, yaml.MappingNode):
        raise RecipeError(
            f"{origin}: an override gives a scalar or a list",
            "Give each key of a section by its dotted name.",
        )
    return None if node is None else reader.value(node, ())


def write_document(values: Any) -> str:
    """Return YAML that ``parse_document`` reads back equal."""
    return yaml.dump(values, Dumper=_QuotingDumper, sort_keys=False, allow_unicode=True)


class _QuotingDumper(yaml.SafeDumper):
    """Quotes every text that this module would read as something else, such as ``0E0``."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = text not in _WORDS and not _INT.fullmatch(text) and not _FLOAT.fullmatch(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_QuotingDumper.add_representer(str, _represent_text)


class _WordLoader(yaml.SafeLoader):
    """Composes every plain scalar as a word; ``_Reader.scalar`` gives it a type."""


_WordLoader.yaml_implicit_resolvers = {}


class _Reader:
    """Turns composed nodes into values and remembers their lines in ``document``."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.document = Document(origin)

    def compose(self, text: str) -> yaml.Node | None:
        try:
            for message, token in _unsafe_tokens(text):
                raise RecipeError(f"{self.place(token)}: {message}", "Write plain values.")
            return yaml.compose(text, Loader=_WordLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = f"{self.origin}:{mark.line + 1}" if mark else self.origin
            message, hint = f"{where}: {error.problem}", "Write `key: value`, indented by spaces."
        except yaml.reader.ReaderError as error:
            message, hint = f"{self.origin}: {error.reason}", "Remove the control character."
        raise RecipeError(message, hint)

    def place(self, node: Any) -> str:
        return f"{self.origin}:{node.start_mark.line + 1}"

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, child in node.value:
            name = self.key(key)
            own = (*path, name)
            if name in result:
                raise RecipeError(
                    f"{self.place(key)}: {'.'.join(own)} is given twice, "
                    f"first at {self.document.place(own)}",
                    "Keep one of the two.",
                )
            self.document.mark(own, self.place(key))
            result[name] = self.value(child, own)
        return result

    def key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            raise RecipeError(f"{self.place(node)}: a key must be a word", "Write `key: value`.")
        return node.value

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, path) for child in node.value]
        assert isinstance(node, yaml.ScalarNode)
        return node.value if node.style is not None else self.scalar(node)

    def scalar(self, node: yaml.ScalarNode) -> Any:
        word: str = node.value
        if word in _WORDS:
            return _WORDS[word]
        if _INT.fullmatch(word) and len(word) <= MAX_DIGITS:
            return int(word)
        if not _FLOAT.fullmatch(word):
            return word
        number = float(word)
        if math.isfinite(number):
            return number
        raise RecipeError(f"{self.place(node)}: {word} is too large", "Quote it if it is text.")


def _unsafe_tokens(text: str) -> list[tuple[str, yaml.Token]]:
    """Return the first refused token, if any, with the reason."""
    depth = 0
    for token in yaml.scan(text, Loader=_WordLoader):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if isinstance(token, yaml.TagToken):
            return [(f"the tag {''.join(part or '' for part in token.value)} is refused", token)]
        if isinstance(token, yaml.AnchorToken | yaml.AliasToken):
            return [(f"the anchor or alias {token.value!r} is refused", token)]
        if depth > MAX_DEPTH:
            return [(f"nested deeper than {MAX_DEPTH} levels", token)]
    return []
