"""Which bytes a model is: content digests of model directories, remembered behind a stat stamp.

A digest enters keys, so it depends on content alone: not on the path, the clock or README files.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.artifacts.file_stamps import file_digests
from core.errors import ModelSourceError
from core.models.adapter_directory import CONTENT, MANIFEST, AdapterDirectory, open_adapter
from core.models.hub import preload, snapshot
from core.models.source import TOKENIZER_FILES, inspect_source, read_config, ships_code

CONTENT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "model.safetensors.index.json",
)
"""Files beside the weights that change what a model computes; absent ones are skipped."""

TEMPLATE_FILES = ("chat_template.jinja", "additional_chat_templates/*.jinja")
"""Chat templates that lie beside the tokenizer; they change only episodes that they frame."""

CODE_FILES = "*.py"
"""Python code of a model; fetched and digested only where a recipe trusts it."""

TOKENIZER_CONTENT = tuple(name for name in CONTENT_FILES if "safetensors" not in name)
"""Files that decide what a tokenizer does, and which ids end a text."""


@dataclass(frozen=True)
class ResolvedModel:
    """A model found on this machine.

    Attributes:
        path: Its directory, absolute.
        digest: SHA-256 over the names and contents of the files that define it.
    """

    path: Path
    digest: str


def resolve(
    model_id: str,
    *,
    revision: str | None = None,
    offline: bool = False,
    stamps: Path | None = None,
    trust_remote_code: bool = False,
) -> ResolvedModel:
    """Find a model and digest it.

    Args:
        model_id: A directory, or a Hub id ``owner/name``.
        revision: Commit on the Hub, 40 hexadecimal digits; meaningless for a directory.
        offline: Look in the local Hub cache only; ``HF_HUB_OFFLINE=1`` has the same effect.
        stamps: Directory of stat stamps; None hashes anew.
        trust_remote_code: Whether Python code of the model may run; it is then part of the digest.

    Raises:
        ModelSourceError: Nothing usable is there.
        MissingDependencyError: A Hub id was given and no client is installed.
    """
    patterns = [*CONTENT_FILES, *TEMPLATE_FILES, "*.safetensors"]
    if trust_remote_code:
        patterns.append(CODE_FILES)
    path = _found(model_id, revision, patterns, offline=offline)
    with _named(model_id, revision):
        digest = model_digest(path, stamps, trust_remote_code=trust_remote_code)
    return ResolvedModel(path.resolve(), digest)


def resolve_tokenizer(
    tokenizer_id: str,
    *,
    revision: str | None = None,
    offline: bool = False,
    stamps: Path | None = None,
) -> ResolvedModel:
    """Find a tokenizer that is not its model's and digest it; weights beside it don't matter.

    Args:
        tokenizer_id: A directory, or a Hub id ``owner/name``.
        revision: Commit on the Hub, 40 hexadecimal digits; meaningless for a directory.
        offline: Look in the local Hub cache only.
        stamps: Directory of stat stamps; None hashes anew.

    Raises:
        ModelSourceError: Nothing usable is there.
        MissingDependencyError: A Hub id was given and no client is installed.
    """
    patterns = [*TOKENIZER_CONTENT, *TEMPLATE_FILES]
    path = _found(tokenizer_id, revision, patterns, offline=offline)
    with _named(tokenizer_id, revision):
        if not any((path / name).is_file() for name in TOKENIZER_FILES):
            raise ModelSourceError(
                f"{path} holds no tokenizer", "Give a directory with tokenizer.json."
            )
    return ResolvedModel(path.resolve(), _digest(path.resolve(), TOKENIZER_CONTENT, stamps))


def resolve_adapter(
    path: str, *, revision: str | None = None, offline: bool = False
) -> AdapterDirectory:
    """Find an adapter and check its files.

    Args:
        path: A directory, or a Hub id ``owner/name``.
        revision: Commit on the Hub; meaningless for a directory.
        offline: Look in the local Hub cache only.

    Raises:
        ModelSourceError: Nothing usable is there.
        MissingDependencyError: A Hub id was given and no client is installed.
    """
    return open_adapter(_found(path, revision, [*CONTENT, MANIFEST], offline=offline))


def _found(name: str, revision: str | None, patterns: list[str], *, offline: bool) -> Path:
    path = Path(name).expanduser()
    return path if path.is_dir() else snapshot(name, revision, patterns, offline=offline)


@contextlib.contextmanager
def _named(name: str, revision: str | None) -> Iterator[None]:
    """Let errors about a snapshot name the Hub id, and the command that fetches it whole."""
    try:
        yield
    except ModelSourceError as error:
        if revision is None or Path(name).expanduser().is_dir():
            raise
        raise ModelSourceError(
            f"{name}@{revision}: {error.message}",
            f"{error.hint} This fetches it whole: `{preload(name, revision)}`.",
        ) from error


def model_digest(path: Path, stamps: Path | None = None, *, trust_remote_code: bool = False) -> str:
    """Return the SHA-256 over names and contents of configuration, tokenizer and weights.

    Args:
        path: A model directory.
        stamps: Directory of stat stamps; None hashes every file.
        trust_remote_code: Whether Python code of the model may run; it counts where it would.

    Raises:
        ModelSourceError: The directory is not a whole model.
    """
    source = inspect_source(path, trust_remote_code=trust_remote_code)
    code: list[str] = []
    if ships_code(read_config(source.path / "config.json")):
        code = [file.name for file in source.path.glob(CODE_FILES)]
    return _digest(source.path, (*CONTENT_FILES, *source.weight_files, *code), stamps)


def _digest(path: Path, wanted: Sequence[str], stamps: Path | None) -> str:
    files = {name: path / name for name in sorted(wanted) if (path / name).is_file()}
    digests = file_digests(files, path, stamps)
    lines = [f"{digest}  {name}\n" for name, digest in digests.items()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
