"""Counter-based noise: a uniform number for every (stream, token), computed and never stored.

A stream is one turn of one episode. Its numbers depend on its key and the token's index alone, so
they are the same in any batch, in any order and on any device.
"""

import torch
from torch import Tensor

from core.models.splitmix import GAMMA, mix, shift_right
from core.seeding import derive_seed

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
    words_SM = mix(counters_M * GAMMA + keys_S[:, None])
    high_SM = shift_right(words_SM, 64 - UNIFORM_BITS)
    return (high_SM.to(torch.float64) + 0.5) * 2.0**-UNIFORM_BITS
