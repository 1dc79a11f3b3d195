import torch

from core.rollout.limits import EpisodeLimits
from core.rollout.prefixes import CAPACITY, Prefixes
from core.rollout.shape import EngineShape


def test_a_row_gets_the_keys_that_feeding_it_would_write(toy):
    shape = EngineShape.of(toy, EpisodeLimits(2, 20, 160))
    prefix = [int(x) for x in torch.arange(9, 9 + 37)]
    shared, own = toy.new_cache(8, shape.width), toy.new_cache(8, shape.width)
    Prefixes(toy, shape).copy_into(shared, 5, prefix)
    padded = torch.tensor(prefix + [0] * (48 - 37))
    for start in (0, 16, 32):
        positions = torch.arange(start, start + 16).expand(8, 16)
        toy.step(padded[start : start + 16].expand(8, 16), positions, own)
    for ours, theirs in zip(shared.keys + shared.values, own.keys + own.values, strict=True):
        assert torch.equal(ours[5, :, :37], theirs[5, :, :37])
        assert ours[:5].abs().max().item() == ours[5, :, 37:].abs().max().item() == 0


def test_a_prefix_is_computed_once(scripted):
    backend = scripted([9])
    shape = EngineShape.of(backend, EpisodeLimits(2, 20, 160))
    prefixes, cache = Prefixes(backend, shape), backend.new_cache(8, shape.width)
    for row in range(8):
        prefixes.copy_into(cache, row, list(range(20)))
    assert len(backend.steps) == 1
    assert cache.keys[0][:, 0, :20, 0].tolist() == [[float(i) for i in range(20)]] * 8


def test_the_prefix_that_was_not_used_for_longest_makes_room(scripted):
    backend = scripted([9])
    shape = EngineShape.of(backend, EpisodeLimits(2, 20, 160))
    prefixes, cache = Prefixes(backend, shape), backend.new_cache(8, shape.width)
    for first in range(CAPACITY):
        prefixes.copy_into(cache, 0, [first, 1])
    prefixes.copy_into(cache, 0, [0, 1])
    prefixes.copy_into(cache, 0, [CAPACITY, 1])
    assert len(backend.steps) == CAPACITY + 1
    prefixes.copy_into(cache, 0, [0, 1])
    assert len(backend.steps) == CAPACITY + 1
    prefixes.copy_into(cache, 0, [1, 1])
    assert len(backend.steps) == CAPACITY + 2
