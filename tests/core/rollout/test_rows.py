import torch

from core.rollout.limits import EpisodeLimits
from core.rollout.noise import uniforms
from core.rollout.rows import Rows, window
from core.rollout.shape import EngineShape


def rows_of(backend, count: int = 8) -> Rows:
    return Rows(backend, EngineShape.of(backend, EpisodeLimits(2, 6, 160)), count, 6)


def test_a_window_is_a_view_of_its_rows_and_slots(toy):
    cache = toy.new_cache(8, 40)
    part = window(cache, 2, 5, 16)
    assert (part.rows, part.width) == (3, 16)
    part.keys[0].fill_(1.0)
    assert cache.keys[0].sum().item() == part.keys[0].numel()
    assert cache.keys[0][2:5, :, :16].min().item() == 1.0


def test_windows_follow_the_state_they_were_made_from(toy):
    rows = rows_of(toy)
    first = rows.window(0, 8, 64)
    rows.place(3, 17)
    assert first is rows.window(0, 8, 64)
    assert first.cursors_S1[:, 0].tolist() == [0, 0, 0, 17, 0, 0, 0, 0]
    assert rows.block_positions(first)[3].tolist() == list(range(17, 49))


def test_only_sampling_rows_move(toy):
    rows = rows_of(toy)
    rows.place(4, 30)
    rows.start_sampling([1, 4], [11, 12], [101, 104])
    rows.count_step()
    rows.stop_sampling(1)
    rows.count_step()
    assert rows.counters_2S.tolist() == [[0, 1, 0, 0, 32, 0, 0, 0], [0, 1, 0, 0, 2, 0, 0, 0]]
    assert rows.token_ids_S1[:, 0].tolist() == [0, 11, 0, 0, 12, 0, 0, 0]


def test_a_turn_starts_with_the_first_number_of_its_stream(toy):
    rows = rows_of(toy)
    rows.start_sampling([1, 4], [11, 12], [101, 104])
    rows.count_step()
    rows.start_sampling([4], [12], [105])
    assert rows.counters_2S[1].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    expected = uniforms(torch.tensor([101, 105]), 7)
    assert torch.equal(rows.uniforms_SM[[1, 4]], expected)


def test_a_row_takes_all_that_is_known_of_it_along(toy):
    rows = rows_of(toy)
    rows.place(6, 3)
    rows.start_sampling([6], [12], [105])
    rows.cache.keys[1][6, :, :3] = 7.0
    noise = rows.uniforms_SM[6].clone()
    rows.move(6, 2, 3)
    rows.count_step()
    assert rows.counters_2S.tolist() == [[0, 0, 4, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]]
    assert rows.token_ids_S1[2].item() == 12
    assert torch.equal(rows.uniforms_SM[2], noise)
    assert rows.cache.keys[1][2, :, :3].min().item() == 7.0


def test_greedy_rows_have_no_noise(toy):
    rows = rows_of(toy)
    rows.start_sampling([0], [11], None)
    assert rows.sampling_S.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert rows.uniforms_SM.unique().tolist() == [0.5]
