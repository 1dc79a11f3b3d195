"""``environment.json``: the machine and its software, from an allow-list.

No host name, user, home directory, path or serial number, and no environment variable but those
that can change numbers. Nothing here needs torch or a driver's own library.
"""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from core.artifacts.provenance import capture

VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TOKENIZERS_PARALLELISM",
)
PACKAGES = (
    "opdflow",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "bitsandbytes",
    "safetensors",
    "pydantic",
    "prefect",
    "numpy",
    "pandas",
    "pyarrow",
    "typer",
    "rich",
)
DRIVER = Path("/proc/driver/nvidia")
_VALUE = re.compile(r"(?!.*(?:GPU|MIG)-)[\w.,:;=+ -]{0,120}")
"""A setting. A path, or the serial number of a device, is none."""
_VERSION = re.compile(r"\b(\d{3,4}\.\d+(?:\.\d+)?)\b")


def describe_machine(driver: Path = DRIVER) -> dict[str, Any]:
    """Return what ``environment.json`` says.

    Args:
        driver: Where the NVIDIA driver describes itself.
    """
    origin = capture()
    hardware = origin["hardware"]
    return {
        "cpu_count": hardware["cpu_count"],
        "git_commit": origin["commit"],
        "git_dirty": origin["dirty"],
        "gpu": describe_gpu(driver),
        "machine": hardware["machine"],
        "os": hardware["system"],
        "os_release": platform.release(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor_family": hardware["processor"],
        "python_implementation": platform.python_implementation(),
        "python_version": origin["python"],
        "tracked_env_vars": _variables(),
    }


def describe_gpu(driver: Path = DRIVER) -> dict[str, Any]:
    """Return the GPUs that the driver lists: their names and the driver's version.

    That a machine has one does not say that a run used it.

    Args:
        driver: Where the NVIDIA driver describes itself.
    """
    names = [_model(path) for path in sorted(driver.glob("gpus/*/information"))]
    found = _VERSION.search(_read(driver / "version"))
    return {
        "available": bool(names),
        "count": len(names),
        "names": [name for name in names if name is not None],
        "driver_version": found[1] if found is not None else None,
    }


def _model(path: Path) -> str | None:
    for line in _read(path).splitlines():
        label, _, value = line.partition(":")
        if label.strip() == "Model":
            return value.strip()
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # no driver, or one that may not be asked
        return ""


def _variables() -> dict[str, str]:
    """Return the listed variables that are set; a value that is no plain setting is not told."""
    found = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {name: text if _VALUE.fullmatch(text) else "set" for name, text in found.items()}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
