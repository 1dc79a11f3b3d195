"""Where a result came from: commit, interpreter, packages and class of hardware.

Nothing here names a person, a host or a home directory.
"""

import os
import platform
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
"""The checkout, where there is one."""

PACKAGES = (
    "opdflow",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "safetensors",
    "prefect",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "bitsandbytes",
)
"""Distributions whose version can change a result."""

_SOURCES = ("core", "tasks", "flows")
_GIT_TIMEOUT_S = 10


def capture(repo: Path = ROOT) -> dict[str, Any]:
    """Describe the code and the machine; taken once per process.

    Args:
        repo: Root of the checkout. Without a ``.git`` of its own (an installed wheel), or without
            git, ``commit`` and ``dirty`` are None.

    Returns:
        ``commit``, ``dirty``, ``python``, ``packages``, ``hardware`` and ``arithmetic``, as a
        record holds them.
    """
    commit, dirty = _commit(repo)
    return {
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "packages": dict(_packages()),
        "hardware": dict(_hardware()),
        "arithmetic": arithmetic(),
    }


def arithmetic() -> dict[str, str | bool]:
    """Return the switches of torch that decide its kernels; nothing where torch is not in use."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {}
    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    found: dict[str, str | bool] = {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn_deterministic": cudnn.deterministic,
        "cudnn_benchmark": cudnn.benchmark,
        "cudnn_tf32": cudnn.allow_tf32,
        "matmul_tf32": cuda.matmul.allow_tf32,
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
        "flash_attention": cuda.flash_sdp_enabled(),
        "memory_efficient_attention": cuda.mem_efficient_sdp_enabled(),
        "cpu_kernels": torch.backends.cpu.get_cpu_capability(),
    }
    if torch.cuda.is_initialized():
        found |= {
            "cuda": torch.version.cuda or "",
            "cudnn": str(cudnn.version()),
            "gpu": torch.cuda.get_device_name(),
        }
    return found


@lru_cache(maxsize=8)
def _commit(repo: Path) -> tuple[str | None, bool | None]:
    # Asked only of a checkout's own root: a wheel may lie in a stranger's repository.
    if not (repo / ".git").exists():
        return None, None
    command = ["git", "-C", str(repo), "status", "--porcelain=v2", "--branch", "--", *_SOURCES]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None, None
    return _read_status(done.stdout)


def _read_status(text: str) -> tuple[str | None, bool]:
    lines = text.splitlines()
    oid = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    dirty = any(not line.startswith("#") for line in lines)
    return (oid if oid and oid != "(initial)" else None), dirty


@lru_cache(maxsize=1)
def _packages() -> tuple[tuple[str, str], ...]:
    found = ((name, _version(name)) for name in PACKAGES)
    return tuple((name, text) for name, text in found if text is not None)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _hardware() -> tuple[tuple[str, str | int], ...]:
    return (
        ("system", platform.system()),
        ("machine", platform.machine()),
        ("processor", _processor()),
        ("cpu_count", os.cpu_count() or 1),
        ("byteorder", sys.byteorder),
    )


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return platform.processor() or "unknown"
    for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
