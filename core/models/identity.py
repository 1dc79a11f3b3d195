"""Which bytes a model is: content digests of model directories, remembered behind a stat stamp.

A digest enters keys, so it depends on content alone: not on the path, the clock or README files.
Stamps only save time. They live outside the model directory, and one is trusted only while size,
inode and both time stamps of its file are those that were hashed.
"""

import hashlib
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.artifacts import filesystem
from core.errors import MissingDependencyError, ModelSourceError, StoreError
from core.models.source import inspect_source

logger = logging.getLogger(__name__)

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

RACY_NS = 2_000_000_000
"""A file changed this shortly before hashing may change again within one tick of its time stamp."""


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
    path = Path(model_id).expanduser()
    if not path.is_dir():
        path = _from_hub(model_id, revision, offline=offline)
    return ResolvedModel(path.resolve(), model_digest(path, stamps))


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
    known = _read_stamps(stamps, source.path)
    entries = {
        name: _stamped(source.path / name, known.get(name))
        for name in sorted([*names, *source.weight_files])
    }
    if stamps is not None and entries != known:
        _write_stamps(stamps, source.path, entries)
    lines = [f"{entry['sha256']}  {name}\n" for name, entry in entries.items()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _stamped(file: Path, known: dict[str, Any] | None) -> dict[str, Any]:
    """Return the stamp of a file: the known one if it still holds, else of a fresh hash."""
    stat = file.stat()
    facts = {
        "size": stat.st_size,
        "inode": stat.st_ino,
        "mtime_ns": stat.st_mtime_ns,
        "ctime_ns": stat.st_ctime_ns,
    }
    if known is not None and all(known.get(name) == value for name, value in facts.items()):
        settled_ns = known.get("hashed_ns", 0) - RACY_NS
        if max(stat.st_mtime_ns, stat.st_ctime_ns) < settled_ns:
            return known
    hashed_ns = time.time_ns()
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {**facts, "hashed_ns": hashed_ns, "sha256": digest}


def _stamp_file(stamps: Path, path: Path) -> Path:
    return stamps / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"


def _read_stamps(stamps: Path | None, path: Path) -> dict[str, Any]:
    """Return the stamps of a directory; whatever cannot be read is as good as absent."""
    if stamps is None:
        return {}
    try:
        entries = json.loads(_stamp_file(stamps, path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("stamps of %s cannot be read, hashing again: %s", path, error)
        return {}
    return entries if isinstance(entries, dict) else {}


def _write_stamps(stamps: Path, path: Path, entries: dict[str, Any]) -> None:
    """Replace the stamps of a directory atomically; failing to costs time, not correctness."""
    try:
        stamps.mkdir(parents=True, exist_ok=True)
        text = json.dumps(entries, sort_keys=True)
        filesystem.replace_file(_stamp_file(stamps, path), [text.encode()])
    except (OSError, StoreError) as error:
        logger.warning("stamps of %s cannot be kept, the next start hashes again: %s", path, error)


def _from_hub(model_id: str, revision: str | None, *, offline: bool) -> Path:
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
    patterns = [*CONTENT_FILES, "*.safetensors"]
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
