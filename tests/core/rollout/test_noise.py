import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.rollout.noise import stream_key, uniforms
from core.seeding import derive_seed

MASK = 2**64 - 1


def stream(key: int, count: int) -> torch.Tensor:
    return uniforms(torch.tensor([key]), count)[0]


def splitmix_words(state: int, count: int) -> list[int]:
    """SplitMix64 as its authors publish it: a state that moves by gamma, and a finaliser."""
    words = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        word = state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        words.append(word ^ (word >> 31))
    return words


def test_the_reference_here_is_splitmix64():
    # First outputs for seed 1234567, from the generator's published test vectors.
    assert splitmix_words(1234567, 5) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_golden_uniforms_of_the_published_stream():
    expected = [(word >> 13) * 2.0**-51 + 2.0**-52 for word in splitmix_words(1234567, 5)]
    assert stream(1234567, 5).tolist() == expected
    assert expected[0] == pytest.approx(6457827717110365317 / 2**64, abs=1e-15)


@given(st.integers(0, 2**63 - 1), st.integers(1, 64))
def test_tensor_hash_equals_integer_hash(key: int, count: int):
    expected = [((word >> 13) + 0.5) * 2.0**-51 for word in splitmix_words(key, count)]
    assert stream(key, count).tolist() == expected


@given(st.integers(0, 2**63 - 1), st.integers(1, 40), st.integers(1, 40))
def test_a_token_has_its_number_whatever_is_asked_for(key: int, few: int, many: int):
    shorter, longer = sorted((few, many))
    assert torch.equal(stream(key, longer)[:shorter], stream(key, shorter))


@given(st.integers(0, 2**63 - 1))
def test_numbers_lie_strictly_between_the_bounds(key: int):
    numbers = stream(key, 256)
    assert numbers.dtype is torch.float64
    assert numbers.min().item() > 0.0
    assert numbers.max().item() <= 1.0 - 2.0**-52


def test_extreme_words_stay_inside_the_interval():
    low, high = 0.5 * 2.0**-51, (2**51 - 0.5) * 2.0**-51
    assert (low, high) == (2.0**-52, 1.0 - 2.0**-52)


def test_numbers_are_uniform_within_and_across_streams():
    # 64 cells, 65 536 numbers: chi-square has mean 63 and standard deviation 11.2.
    along = stream(derive_seed("along"), 65_536)
    across = uniforms(torch.tensor([stream_key(7, f"e{i}", 0) for i in range(4096)]), 16).flatten()
    for numbers in (along, across):
        counts = torch.bincount((numbers * 64).long(), minlength=64).double()
        assert ((counts - 1024) ** 2 / 1024).sum().item() == pytest.approx(63, abs=4 * 11.2)
        assert numbers.mean().item() == pytest.approx(0.5, abs=4 * 12**-0.5 / 256)


def test_neighbouring_tokens_turns_and_episodes_are_uncorrelated():
    keys = [stream_key(7, f"e{episode}", turn) for episode in range(32) for turn in range(4)]
    centred = uniforms(torch.tensor(keys), 64).view(32, 4, 64) - 0.5
    pairs = [
        centred[:, :, :-1] * centred[:, :, 1:],
        centred[:, :-1] * centred[:, 1:],
        centred[:-1] * centred[1:],
    ]
    for products in pairs:
        assert products.mean().item() == pytest.approx(0, abs=4 / 12 / products.numel() ** 0.5)


def test_keys_separate_seed_episode_and_turn():
    keys = {stream_key(s, e, t) for s in (0, 1) for e in ("a", "b") for t in (0, 1)}
    assert len(keys) == 8
    assert stream_key(3, "c0:calc-train-1", 2) == derive_seed(3, "rollout", "c0:calc-train-1", 2)
