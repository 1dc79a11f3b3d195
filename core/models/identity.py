"""Which bytes a model is: content digests of model directories, remembered behind a stat stamp.

A digest enters keys, so it depends on content alone: not on the path, the clock or README files.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from core.artifacts.file_stamps import file_digests
from core.errors import MissingDependencyError, ModelSourceError
from core.models.adapter_directory import CONTENT, MANIFEST, AdapterDirectory, open_adapter
from core.models.source import inspect_source

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
) -> ResolvedModel:
    """Find a model and digest it.

    Args:
        model_id: A directory, or a Hub id ``owner/name``.
        revision: Commit, branch or tag on the Hub; meaningless for a directory.
        offline: Look in the local Hub cache only; ``HF_HUB_OFFLINE=1`` has the same effect.
        stamps: Directory of stat stamps; None hashes anew.

    Raises:
        ModelSourceError: Nothing usable is there.
        MissingDependencyError: A Hub id was given and no client is installed.
    """
    patterns = [*CONTENT_FILES, *TEMPLATE_FILES, "*.safetensors"]
    path = _found(model_id, revision, patterns, offline=offline)
    return ResolvedModel(path.resolve(), model_digest(path, stamps))


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
    return path if path.is_dir() else _from_hub(name, revision, patterns, offline=offline)


def model_digest(path: Path, stamps: Path | None = None) -> str:
    """Return the SHA-256 over names and contents of configuration, tokenizer and weights.

    Args:
        path: A model directory.
        stamps: Directory of stat stamps; None hashes every file.

    Raises:
        ModelSourceError: The directory is not a whole model.
    """
    source = inspect_source(path)
    names = [name for name in CONTENT_FILES if (source.path / name).is_file()]
    files = {name: source.path / name for name in sorted([*names, *source.weight_files])}
    digests = file_digests(files, source.path, stamps)
    lines = [f"{digest}  {name}\n" for name, digest in digests.items()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _from_hub(model_id: str, revision: str | None, patterns: list[str], *, offline: bool) -> Path:
    """Return the local snapshot of a Hub id, downloading it unless offline."""
    if model_id.count("/") != 1 or model_id.startswith((".", "/", "~")):
        raise ModelSourceError(
            f"{model_id} is neither a directory nor a Hub id",
            "Make it first (README, `opd import-gguf`), or give a Hub id like owner/name.",
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise MissingDependencyError(
            f"{model_id} is not a directory, and no Hub client is installed",
            "Run `pip install 'opdflow[train]'`, or give a local model directory.",
        ) from error
    try:
        snapshot = snapshot_download(
            model_id, revision=revision, local_files_only=offline, allow_patterns=patterns
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelSourceError(
            f"{model_id} is not a directory here and could not be had from the Hub: {reason}",
            "Correct the path or id, or download it once with a network: "
            f"`hf download {model_id}`.",
        ) from error
    return Path(snapshot)
