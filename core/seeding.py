"""Seeds: one derivation for every purpose, so that no two streams share a state by accident."""

import hashlib


def derive_seed(*parts: object) -> int:
    """Return 63 reproducible bits for a purpose.

    First eight bytes, big-endian, of SHA-256 over the parts joined with ``|``, shifted right once.
    Call sites have a fixed arity and no ``|`` in any part, so distinct purposes cannot collide.

    Args:
        parts: What the stream is for, e.g. ``(run_seed, "rollout", trajectory_id)``.

    Returns:
        An integer in ``[0, 2**63)``, the range that every generator accepts.
    """
    blob = "|".join(str(part) for part in parts).encode("utf-8")
    return int.from_bytes(hashlib.sha256(blob).digest()[:8], "big") >> 1
