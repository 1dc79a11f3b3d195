"""bitsandbytes, imported quietly and without the kernels that it would fetch from the Hub.

On a CPU with bfloat16 instructions it asks the package ``kernels``, where that is installed, to
download compiled code and runs it. Nothing here runs code that the user did not install.
"""

import importlib
import importlib.util
import logging
import sys
from typing import Any

from core.errors import MissingDependencyError

NAME = "bitsandbytes"


def import_bitsandbytes(wanted_by: str, instead: str) -> Any:
    """Return the library.

    Args:
        wanted_by: What needs it, as the user wrote it.
        instead: What does without it.

    Raises:
        MissingDependencyError: It is not installed.
    """
    if importlib.util.find_spec(NAME) is None:
        raise MissingDependencyError(
            f"{wanted_by} needs bitsandbytes, which is not installed",
            f"Run `pip install 'opdflow[cuda]'`, or {instead}.",
        )
    # It warns about that kernel, and about every cast of an activation.
    logging.getLogger(NAME).setLevel(logging.ERROR)
    blocked = "kernels" not in sys.modules
    if blocked:
        # None makes the import fail, which bitsandbytes takes as "not installed".
        sys.modules["kernels"] = None  # pyright: ignore[reportArgumentType]
    try:
        return importlib.import_module(NAME)
    finally:
        if blocked:
            del sys.modules["kernels"]


def quieten_bitsandbytes() -> None:
    """Import the library as above where it is installed, before another library does."""
    if importlib.util.find_spec(NAME) is not None:
        import_bitsandbytes("peft", "leave it out")
