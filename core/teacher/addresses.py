"""Names of teacher targets: equal addresses, equal bits.

A frozen teacher is a function of the tokens that it read. So a target is named after the teacher,
after how it computes, and after the exact tokens up to the predicting position; who wrote the
tokens, in which run, cycle or arm, and whatever follows them, changes nothing. Imports no torch.
"""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from core.artifacts.key import canonical_json
from core.recipe.schema.loss import LossMode

ADDRESS_BYTES = 16
SCOPE_DIGITS = 16
IMPLEMENTATION = 1
"""Raised whenever the same address would be answered by other bits for a reason not named here."""


@dataclass(frozen=True)
class Scope:
    """What all targets of one file have in common."""

    teacher_digest: str
    """Content digest of the teacher's artifact."""
    tokenizer_digest: str
    """Content digest of its tokenizer."""
    mode: LossMode
    """What is kept per position."""
    top_k: int | None
    """Log-probabilities per position."""
    temperature: float | None
    """Divides the teacher's logits."""
    vocab_size: int
    """Width of the teacher's head."""
    dtype: str
    """Arithmetic of its weights."""
    device: str
    """Kind of device, with its name where it is an accelerator."""
    threads: int
    """CPU threads of one operation."""
    torch: str
    """Version of torch, and the instruction set that it uses."""
    implementation: int = IMPLEMENTATION
    """Version of the scoring code."""

    @property
    def digest(self) -> str:
        """Name of the scope, 16 hex digits."""
        text = canonical_json(asdict(self))
        return hashlib.sha256(text.encode()).hexdigest()[:SCOPE_DIGITS]


def addresses(
    salt: str,
    token_ids: Sequence[int],
    positions: Sequence[int],
    target_ids: Sequence[int] | None,
) -> list[bytes]:
    """Return one address per position.

    Args:
        salt: Scope and physical sizes, as text.
        token_ids: What the teacher reads, at least up to the last position.
        positions: Positions whose outputs predict the targets, ascending.
        target_ids: The target tokens, where the result depends on them; None where it does not.
    """
    tokens = array("q", token_ids)
    running = hashlib.sha256(salt.encode() + b"\n")
    found, start = [], 0
    for index, position in enumerate(positions):
        running.update(tokens[start : position + 1].tobytes())
        start = position + 1
        own = running.copy()
        if target_ids is not None:
            own.update(b"target" + array("q", [target_ids[index]]).tobytes())
        found.append(own.digest()[:ADDRESS_BYTES])
    return found
