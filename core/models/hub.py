"""The Hub: pinned ids become local snapshots, and nothing else here opens a connection.

A Hub id is asked for at a commit. Branches and tags move, and what a recipe means must not. Weights
come as safetensors; pickled ones could run code and are never fetched.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.errors import MissingDependencyError, ModelSourceError

COMMIT = re.compile(r"[0-9a-f]{40}")
SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
"""Environment variables that keep the Hub's libraries, and processes started later, off it."""


def snapshot(name: str, revision: str | None, patterns: Sequence[str], *, offline: bool) -> Path:
    """Return the local snapshot of a Hub id, downloading it unless offline.

    Args:
        name: ``owner/name``.
        revision: The commit, 40 hexadecimal digits.
        patterns: Files that are wanted.
        offline: Look in the local cache only.

    Raises:
        ModelSourceError: The id is none, is not pinned, or cannot be had.
        MissingDependencyError: No Hub client is installed.
    """
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelSourceError(
            f"{name} is neither a directory nor a Hub id",
            "Make it first (README, `opd import-gguf`), or give a Hub id like owner/name.",
        )
    pinned = _pinned(name, revision)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} is not a directory, and no Hub client is installed",
            "Run `pip install 'opdflow[train]'`, or give a local model directory.",
        ) from error
    try:
        with without_network() if offline else contextlib.nullcontext():
            found = snapshot_download(
                name, revision=pinned, local_files_only=offline, allow_patterns=list(patterns)
            )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        reason = "this run is offline" if offline else str(error).splitlines()[0]
        raise ModelSourceError(
            f"{name}@{pinned} is not on this disk and could not be had from the Hub: {reason}",
            f"Correct the path or id, or fetch it once with a network: `{preload(name, pinned)}`.",
        ) from error
    return Path(found)


def preload(name: str, revision: str) -> str:
    """Return the command that puts a Hub id into the local cache."""
    return f'hf download {name} --revision {revision} --exclude "*.bin" "*.pt" "*.pth" "*.gguf"'


def _pinned(name: str, revision: str | None) -> str:
    if revision is not None and COMMIT.fullmatch(revision):
        return revision
    given = "no revision" if revision is None else f"revision {revision}, which can move"
    raise ModelSourceError(
        f"{name} is no directory here, and as a Hub id it has {given}",
        "Make the directory first (README, `opd import-gguf`), or give the commit, 40 hexadecimal "
        "digits, as revision; the model's page on the Hub lists them under History.",
    )


@contextlib.contextmanager
def without_network() -> Iterator[None]:
    """Keep the Hub's client from opening a connection meanwhile; loading files needs none."""
    try:
        from huggingface_hub import constants
    except ImportError:  # nothing is there that could ask
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def stay_offline() -> None:
    """Keep this process and those that it starts off the Hub for good: ``runtime.offline``."""
    for switch in SWITCHES:
        os.environ[switch] = "1"
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None:
        constants.HF_HUB_OFFLINE = True  # pyright: ignore[reportAttributeAccessIssue]
        constants.HF_HUB_DISABLE_TELEMETRY = True  # pyright: ignore[reportAttributeAccessIssue]
