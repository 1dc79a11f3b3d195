"""Tokenizers of Hugging Face models behind the ``TokenCodec`` contract.

The Rust tokenizer is called directly: nothing is added, truncated, padded or cleaned up, so ids are
exactly those of the text, and texts exactly those of the ids.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from core.errors import (
    ChatTemplateError,
    InputError,
    ModelSourceError,
    TokenizerMismatchError,
)
from core.models.chat_template import TokenizerTemplate, template_of
from core.models.loading import first_line, quiet_transformers
from core.models.source import read_config, refuse_code, ships_code
from core.trajectory.tokens import Piece, TokenCodec, TokenRole

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
"""Control tags of ChatML, which transcripts are written in unless a recipe says otherwise."""

PROBE = "Zebra"
"""Content of messages that are rendered to find a template's end of turn."""


class HFTokenizer:
    """A ``TokenCodec`` over a fast tokenizer.

    Args:
        backend: The Rust tokenizer (``tokenizers.Tokenizer``).
        eos_ids: Ids that end a turn.
        pad_id: Id that fills padding; any id will do, as masks come from lengths.
        generation_prompt: What the model's own chat template writes before a reply; None where it
            has no template, or none that can be asked.
        chat_template: The template that came with the tokenizer.
    """

    def __init__(
        self,
        backend: Any,
        eos_ids: tuple[int, ...],
        pad_id: int,
        generation_prompt: str | None = None,
        chat_template: TokenizerTemplate | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.eos_ids = eos_ids
        self.pad_id = pad_id
        self.generation_prompt = generation_prompt
        self.chat_template = chat_template
        self.speaks_chatml = _turn_end_id(backend) is not None
        added = backend.get_added_tokens_decoder().values()
        self.control_texts = tuple(token.content for token in added if token.special)
        """Texts of special tokens: what only a template may write."""
        # One past the highest id: ids may have holes, and the head may have more rows.
        self.vocab_size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
        self.digest = content_digest(backend.to_str())

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; control tags in it become their own ids. Adds nothing.

        Raises:
            InputError: ``text`` holds a lone surrogate, which no UTF-8 text can.
        """
        try:
            return self._backend.encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise InputError(
                "the text holds a lone surrogate or is no text",
                "Surrogates stand for half a character; remove it or write the whole character.",
            ) from error

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included, with no clean-up of spaces."""
        return self._backend.decode(list(token_ids), skip_special_tokens=False)

    def pieces(self) -> Mapping[int, Piece]:
        """Return the bytes and the role of every id of a byte-level vocabulary.

        Tokens that were added to the vocabulary are control tags, special or not: text becomes one
        of them as a whole or not at all.

        Raises:
            TokenizerMismatchError: Its entries are no bytes, or it writes a space before a text.
        """
        content = json.loads(self._backend.to_str())
        decoder = content.get("decoder") or {}
        kinds = {part["type"] for part in decoder.get("decoders", [decoder]) if "type" in part}
        if "ByteLevel" not in kinds or self.decode(self.encode("a")) != "a":
            raise TokenizerMismatchError(
                f"a tokenizer that decodes with {', '.join(sorted(kinds)) or 'nothing'} has tokens "
                "without bytes of their own",
                "Use loss.mode=verl_pg_k1, which compares sums over texts.",
            )
        found = {
            index: Piece(spelled, TokenRole.TEXT)
            for entry, index in self._backend.get_vocab(with_added_tokens=False).items()
            if (spelled := _bytes_of(entry)) is not None
        }
        for token in content.get("added_tokens", []):
            role = TokenRole.END if token["id"] in self.eos_ids else TokenRole.CONTROL
            found[token["id"]] = Piece(token["content"].encode(), role)
        return found


def load_tokenizer(path: Path, *, trust_remote_code: bool = False) -> HFTokenizer:
    """Load the tokenizer of a model directory.

    Args:
        path: The directory.
        trust_remote_code: Whether Python code in it may run.

    Raises:
        ModelSourceError: There is none, it wants to run code that is not trusted, it has no Rust
            implementation, or it lacks ChatML's tags.
        MissingDependencyError: transformers is not installed.
    """
    settings = path / "tokenizer_config.json"
    if settings.is_file() and ships_code(read_config(settings)):
        refuse_code(settings, trusted=trust_remote_code)
    with quiet_transformers() as transformers:
        try:
            loaded = transformers.AutoTokenizer.from_pretrained(
                str(path), local_files_only=True, trust_remote_code=trust_remote_code
            )
        # Its loaders raise whatever the file at fault makes them raise.
        except Exception as error:
            raise ModelSourceError(
                f"the tokenizer in {path} cannot be loaded: {first_line(error)}",
                "Copy or download the model's tokenizer files again.",
            ) from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ModelSourceError(
            f"the tokenizer in {path} has no tokenizer.json", "Save it as a fast tokenizer first."
        )
    template = template_of(loaded)
    found = (_turn_end_id(backend), _terminator(backend, template))
    ends = {index for index in found if index is not None}
    if not ends and template is None:
        raise ModelSourceError(
            f"the tokenizer in {path} has no single tokens {TURN_START} and {TURN_END}, and no "
            "chat template",
            "Use a model that speaks ChatML, such as SmolLM2-Instruct or Qwen, or that has a "
            "template.",
        )
    eos_ids = sorted({*ends, *_declared_eos_ids(path, loaded.eos_token_id)})
    if not eos_ids:
        raise ModelSourceError(
            f"nothing in {path} says which token ends a turn",
            "Write eos_token_id into generation_config.json.",
        )
    pad_id = eos_ids[0] if loaded.pad_token_id is None else int(loaded.pad_token_id)
    return HFTokenizer(backend, tuple(eos_ids), pad_id, _generation_prompt(loaded), template)


def content_digest(serialised: str) -> str:
    """Return the SHA-256 of what a tokenizer does to text.

    Vocabulary, merges, special tokens, normaliser, pre-tokeniser and decoder count. Truncation,
    padding and the post-processor do not, because they are never used here; nor does the order in
    which a vocabulary was written, nor whether merges are strings or pairs.

    Args:
        serialised: The text of a ``tokenizer.json``.
    """
    content = json.loads(serialised)
    for unused in ("truncation", "padding", "post_processor", "version"):
        content.pop(unused, None)
    merges = content.get("model", {}).get("merges", [])
    if merges:
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
        content["model"]["merges"] = pairs
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _generation_prompt(loaded: Any) -> str | None:
    """Return what a chat template writes before a reply: its text with it, less that without."""
    if not loaded.chat_template:
        return None
    asked = [{"role": "user", "content": "x"}]
    try:
        plain, prompted = (
            loaded.apply_chat_template(asked, tokenize=False, add_generation_prompt=wanted)
            for wanted in (False, True)
        )
    except (TemplateError, ValueError, TypeError):  # some templates take no lone user message
        return None
    return prompted.removeprefix(plain)


def generation_prompts_differ(student: TokenCodec, teacher: TokenCodec) -> bool:
    """Return whether two models' own templates begin a reply in different ways.

    A teacher that was trained to think first puts its mass on the thought where a student's turn
    begins, and the first tokens differ for that reason alone.

    Args:
        student: Its tokenizer.
        teacher: Its tokenizer.

    Returns:
        False also where one of them has no template.
    """
    own, theirs = (getattr(one, "generation_prompt", None) for one in (student, teacher))
    return None not in (own, theirs) and own != theirs


def _byte_alphabet() -> dict[str, int]:
    """Return the character that stands for each byte in a byte-level vocabulary (GPT-2).

    Printable bytes of Latin-1 stand for themselves; the others, in order, for U+0100 and up.
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    characters = {chr(byte): byte for byte in shown}
    return characters | {chr(256 + rank): byte for rank, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()


def _bytes_of(entry: str) -> bytes | None:
    """Return the bytes of an entry; None where a character of it stands for none."""
    spelled = [_BYTES.get(character) for character in entry]
    return None if None in spelled else bytes(byte for byte in spelled if byte is not None)


def _turn_end_id(backend: Any) -> int | None:
    """Return the id of ChatML's tag that ends a turn, if both tags are single tokens."""
    ids = [backend.encode(tag, add_special_tokens=False).ids for tag in (TURN_START, TURN_END)]
    return ids[1][0] if all(len(single) == 1 for single in ids) else None


def _terminator(backend: Any, template: TokenizerTemplate | None) -> int | None:
    """Return the special token that a chat template writes right after an assistant's words."""
    if template is None:
        return None
    said = [{"role": "user", "content": PROBE}, {"role": "assistant", "content": PROBE}]
    try:
        _, found, after = template(said, [], False).rpartition(PROBE)
    except ChatTemplateError:
        # Whoever renders with it is told; a tokenizer can be used without its template.
        return None
    ids = backend.encode(after, add_special_tokens=False).ids
    special = {
        index for index, token in backend.get_added_tokens_decoder().items() if token.special
    }
    return ids[0] if found and ids and ids[0] in special else None


def _declared_eos_ids(path: Path, tokenizer_eos_id: int | None) -> set[int]:
    """Return every id that the model's files or its tokenizer declare to end a text."""
    declared: list[Any] = [tokenizer_eos_id]
    for name in ("generation_config.json", "config.json"):
        if (path / name).is_file():
            value = read_config(path / name).get("eos_token_id")
            declared.extend(value if isinstance(value, list) else [value])
    return {int(index) for index in declared if index is not None}
