"""Counter-based noise: a uniform number for every (stream, token), computed and never stored.

A stream is one turn of one episode. Its numbers depend on its key and the token's index alone, so
they are the same in any batch, in any order and on any device. The generator is SplitMix64 (Steele,
Lea and Flood 2014, https://doi.org/10.1145/2714064.2660195), whose n-th output is a hash of
``key + n * gamma``; int64 arithmetic wraps alike on CPU and CUDA.
"""

import torch
from torch import Tensor

from core.seeding import derive_seed


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


GAMMA = _signed(0x9E3779B97F4A7C15)
FIRST_FACTOR = _signed(0xBF58476D1CE4E5B9)
SECOND_FACTOR = _signed(0x94D049BB133111EB)
UNIFORM_BITS = 51
"""One bit less than float64 can hold beside the half step: with it, the largest uniform times a
total is below that total after rounding, so an inverse CDF never runs off its end."""


def stream_key(seed: int, trajectory_id: str, turn: int) -> int:
    """Return the key of one turn of one episode: 63 bits.

    Args:
        seed: Seed of the run.
        trajectory_id: Name of the episode, unique in the run and without ``|``.
        turn: Index of the turn.
    """
    return derive_seed(seed, "rollout", trajectory_id, turn)


def uniforms(keys_S: Tensor, count: int) -> Tensor:
    """Return the first ``count`` numbers of each stream.

    Args:
        keys_S: int64, key of each stream; every device gives the same bits.
        count: Tokens to cover.

    Returns:
        ``[S, count]`` float64 in (0, 1), never 0 or 1.
    """
    counters_M = torch.arange(1, count + 1, device=keys_S.device)
    words_SM = _mix(counters_M * GAMMA + keys_S[:, None])
    high_SM = _shift_right(words_SM, 64 - UNIFORM_BITS)
    return (high_SM.to(torch.float64) + 0.5) * 2.0**-UNIFORM_BITS


def _mix(words: Tensor) -> Tensor:
    words = (words ^ _shift_right(words, 30)) * FIRST_FACTOR
    words = (words ^ _shift_right(words, 27)) * SECOND_FACTOR
    return words ^ _shift_right(words, 31)


def _shift_right(words: Tensor, bits: int) -> Tensor:
    # torch shifts int64 arithmetically; the mask clears the copies of the sign.
    return (words >> bits) & (2 ** (64 - bits) - 1)
