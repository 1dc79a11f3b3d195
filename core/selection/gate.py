"""The gate of ``verifier_gated``: does a verifier let this trajectory teach at all."""

from collections.abc import Mapping
from typing import Any


def is_qualified(metadata: Mapping[str, Any]) -> bool:
    """Return whether a trajectory may be trained on.

    Args:
        metadata: Of the trajectory. ``policy_gate_qualified`` is a verifier's verdict; where no
            verifier ran, ``policy_sensitive`` (the environment's own mark) decides.

    Returns:
        True only for a flag that is literally true: an absent or textual flag does not qualify.
    """
    flag = metadata.get("policy_gate_qualified", metadata.get("policy_sensitive"))
    return flag is True
