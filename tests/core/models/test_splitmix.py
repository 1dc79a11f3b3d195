"""The words are those that the generator's authors publish."""

import torch

from core.models.splitmix import GAMMA, mix, shift_right


def test_words_of_the_published_stream():
    counters = torch.arange(1, 6)
    found = mix(counters * GAMMA + 1234567)
    assert [word % 2**64 for word in found.tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_shifting_fills_with_zeros():
    assert shift_right(torch.tensor([-1]), 60).tolist() == [15]
