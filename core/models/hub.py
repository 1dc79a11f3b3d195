"""The Hub: pinned ids become local snapshots, and nothing else here opens a connection.

A Hub id is asked for at a commit. Branches and tags move, and what a recipe means must not. Weights
come as safetensors; pickled ones could run code and are never fetched.
"""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from core.errors import AbsentModelError, MissingDependencyError, ModelSourceError

COMMIT = re.compile(r"[0-9a-f]{40}")
SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
"""Environment variables that keep the Hub's libraries, and processes started later, off it."""


ASK_S = 10.0
"""Seconds that the Hub has to answer before it counts as out of reach."""


def snapshot(name: str, revision: str | None, patterns: Sequence[str], *, offline: bool) -> Path:
    """Return the local snapshot of a Hub id, downloading it unless offline.

    Where the Hub does not answer, the local cache does.

    Args:
        name: ``owner/name``.
        revision: The commit, 40 hexadecimal digits.
        patterns: Files that are wanted.
        offline: Look in the local cache only.

    Raises:
        ModelSourceError: The id is none, or is not pinned.
        AbsentModelError: It is not on this disk and cannot be had.
        MissingDependencyError: No Hub client is installed.
    """
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelSourceError(
            f"{name} is neither a directory nor a Hub id",
            "Make it first (README, `opd import-gguf`), or give a Hub id like owner/name.",
        )
    pinned = _pinned(name, revision)
    found = _snapshot(name, pinned, tuple(patterns), offline, _cache())
    if not found.is_dir():  # somebody cleaned the cache up
        _snapshot.cache_clear()
        found = _snapshot(name, pinned, tuple(patterns), offline, _cache())
    return found


def _cache() -> str:
    try:
        from huggingface_hub import constants
    except ImportError:
        return ""  # the next step says that there is no client
    return constants.HF_HUB_CACHE


@functools.lru_cache(maxsize=256)
def _snapshot(name: str, pinned: str, patterns: tuple[str, ...], offline: bool, cache: str) -> Path:
    """Find a snapshot, once per process: a commit does not change. Failures are not remembered."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} is not a directory, and no Hub client is installed",
            "Run `pip install 'opdflow[train]'`, or give a local model directory.",
        ) from error
    silent = "this run is offline" if offline else _unanswered(name, pinned)
    local = silent is not None
    try:
        with without_network() if local else contextlib.nullcontext():
            found = snapshot_download(
                name, revision=pinned, local_files_only=local, allow_patterns=list(patterns)
            )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        reason = silent or str(error).splitlines()[0]
        raise AbsentModelError(
            f"{name}@{pinned} is not on this disk and could not be had from the Hub: {reason}",
            f"Correct the path or id, or fetch it once with a network: `{preload(name, pinned)}`.",
        ) from error
    return Path(found)


def _unanswered(name: str, pinned: str) -> str | None:
    """Ask the Hub for a commit once, and return why it did not answer, or None.

    A download asks six times over half a minute, which is for one that is on its way.
    """
    from huggingface_hub import HfApi, get_session
    from huggingface_hub.errors import HfHubHTTPError

    # The client changed its HTTP library more than once, and lets that library's errors through.
    library = import_module(type(get_session()).__module__.partition(".")[0])
    try:
        HfApi().model_info(name, revision=pinned, timeout=ASK_S)
    except (library.HTTPError, HfHubHTTPError, OSError, ValueError) as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None


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
