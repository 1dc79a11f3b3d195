from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from core.teacher.addresses import Scope
from core.teacher.cache_audit import stats, validate
from core.teacher.cache_index import read_index, read_usage
from core.teacher.target_cache import TargetCache

SCOPE = Scope("t", "k", "bucketed_topk_tail", 2, 1.0, 335, "float32", "cpu", 1, "2")


def columns(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "support_ids_NK": torch.randint(0, 335, (count, 2), generator=generator),
        "tail_logprob_N": torch.randn(count, generator=generator),
    }


def names(*numbers):
    return [number.to_bytes(1, "big") * 16 for number in numbers]


def publish(cache, episodes, *, scope=SCOPE, served=(), max_bytes=1 << 20, entries=32):
    cache.publish(
        scope, episodes, hits=0, misses=sum(len(own) for own, _ in episodes), served=set(served),
        max_bytes=max_bytes, entries_per_shard=entries,
    )  # fmt: skip


def test_what_was_kept_returns_bit_by_bit_in_the_order_asked_for(tmp_path):
    first, second = columns(3, 1), columns(2, 2)
    publish(TargetCache(tmp_path), [(names(9, 200, 3), first), (names(7, 1), second)])
    known, files = TargetCache(tmp_path).find(SCOPE, [names(1, 9), names(3, 4), []])
    assert known[1:] == [None, None]
    for name, tensor in known[0].items():
        assert tensor.dtype == first[name].dtype
        assert torch.equal(tensor, torch.stack([second[name][1], first[name][0]]))
    assert files == {shard.file for shard in read_index(tmp_path).shards}


def test_another_scope_sees_nothing(tmp_path):
    cache = TargetCache(tmp_path)
    publish(cache, [(names(1), columns(1))])
    other = Scope("other", "k", "bucketed_topk_tail", 2, 1.0, 335, "float32", "cpu", 1, "2")
    assert cache.find(other, [names(1)]) == ([None], set())


def test_a_target_is_stored_once(tmp_path):
    cache = TargetCache(tmp_path)
    publish(cache, [(names(1, 2), columns(2)), (names(2, 3), columns(2))])
    publish(cache, [(names(1, 2, 3), columns(3))])
    assert [shard.positions for shard in read_index(tmp_path).shards] == [3]


def test_a_file_holds_at_most_so_many_episodes(tmp_path):
    episodes = [(names(n), columns(1, n)) for n in range(5)]
    publish(TargetCache(tmp_path), episodes, entries=2)
    assert [shard.episodes for shard in read_index(tmp_path).shards] == [2, 2, 1]


def test_the_least_recently_used_go_first(tmp_path):
    cache = TargetCache(tmp_path)
    for number in range(3):
        publish(cache, [(names(number), columns(1, number))])
    sizes = [shard.size for shard in read_index(tmp_path).shards]
    _, served = cache.find(SCOPE, [names(0)])
    publish(cache, [(names(9), columns(1, 9))], served=served, max_bytes=sum(sizes))
    known, _ = cache.find(SCOPE, [names(n) for n in (0, 1, 2, 9)])
    assert [one is not None for one in known] == [True, False, True, True]
    assert stats(tmp_path)["bytes"] <= sum(sizes)
    assert len(list(tmp_path.glob("targets-*"))) == 3
    assert set(read_usage(tmp_path).used) == {s.file for s in read_index(tmp_path).shards}


def test_no_room_at_all_keeps_nothing(tmp_path):
    publish(TargetCache(tmp_path), [(names(1), columns(1))], max_bytes=0)
    assert not list(tmp_path.glob("targets-*"))


def test_the_index_goes_before_the_files(tmp_path, monkeypatch):
    """A process that dies while it prunes leaves files too many, never one too few."""
    cache = TargetCache(tmp_path)
    publish(cache, [(names(1), columns(1))])

    def die(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("core.artifacts.filesystem.remove_file", die)
    with pytest.raises(KeyboardInterrupt):
        publish(cache, [(names(2), columns(1, 2))], max_bytes=0)
    monkeypatch.undo()
    assert read_index(tmp_path).shards == ()
    assert len(list(tmp_path.glob("targets-*"))) == 2
    publish(cache, [(names(3), columns(1, 3))])
    assert len(list(tmp_path.glob("targets-*"))) == 1
    assert validate(tmp_path) == []


def test_a_file_pruned_by_another_process_is_a_miss(tmp_path):
    cache, other = TargetCache(tmp_path), TargetCache(tmp_path)
    publish(cache, [(names(1), columns(1))])
    publish(other, [], max_bytes=0)
    assert cache.find(SCOPE, [names(1)]) == ([None], set())
    assert not cache.discard("targets-0000000000000000.safetensors")


def test_many_writers_lose_nothing(tmp_path):
    def write(number):
        publish(TargetCache(tmp_path), [(names(number, 100), columns(2, number))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))
    assert stats(tmp_path)["positions"] == 17
    assert read_usage(tmp_path).clock == 16
    assert validate(tmp_path) == []
