"""The file that takes tracebacks, out of the user's way and ready for a bug report."""

import traceback
from collections.abc import Sequence
from pathlib import Path

LAST_ERROR = Path(".opd/last-error.log")


def keep_tracebacks(errors: Sequence[BaseException]) -> None:
    """Replace what an earlier command left there by the tracebacks of this one."""
    LAST_ERROR.parent.mkdir(parents=True, exist_ok=True)
    texts = ["".join(traceback.format_exception(error)) for error in errors]
    LAST_ERROR.write_text("\n".join(texts), encoding="utf-8")
