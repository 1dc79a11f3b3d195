"""SplitMix64 on tensors: counters become random words, with equal bits on every device.

Steele, Lea and Flood 2014 (https://doi.org/10.1145/2714064.2660195). The n-th word of a stream is a
hash of ``key + n * GAMMA``; int64 arithmetic wraps alike on CPU and CUDA.
"""

from torch import Tensor


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


GAMMA = _signed(0x9E3779B97F4A7C15)
FIRST_FACTOR = _signed(0xBF58476D1CE4E5B9)
SECOND_FACTOR = _signed(0x94D049BB133111EB)


def mix(words: Tensor) -> Tensor:
    """Return SplitMix64's hash of every int64 word."""
    words = (words ^ shift_right(words, 30)) * FIRST_FACTOR
    words = (words ^ shift_right(words, 27)) * SECOND_FACTOR
    return words ^ shift_right(words, 31)


def shift_right(words: Tensor, bits: int) -> Tensor:
    """Shift int64 words right and fill with zeros."""
    # torch shifts int64 arithmetically; the mask clears the copies of the sign.
    return (words >> bits) & (2 ** (64 - bits) - 1)
